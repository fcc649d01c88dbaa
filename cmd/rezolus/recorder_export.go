// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// partial is what the name of a file ends in until it is whole.
const partial = ".part"

// exportRecording writes a recording in another form, as `recording convert`
// does, and gives the file its name when it is whole.
func exportRecording(ctx context.Context, from, to, form string) error {
	in, err := openRecording(ctx, from)
	if err != nil {
		return err
	}
	defer in.Close()
	part := to + partial
	if err := os.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	r := &conversionRun{&conversion{}, whole(in)}
	_, err = r.file(ctx, part, form)
	if err == nil {
		err = os.Rename(part, to)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", to, err), os.RemoveAll(part))
	}
	return nil
}
