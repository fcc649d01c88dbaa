// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"syscall"

	"rezolus/internal/metric"
	"rezolus/internal/query"
	"rezolus/internal/store"
)

// readable is a file of ticks that can be read and asked, of whatever form.
type readable interface {
	query.Reader
	Each(ctx context.Context, from, to int64, f func(*metric.Snapshot) error) error
	Info() store.Info
	Refresh() error
	Close() error
}

// opened is a file of ticks, and where it is.
type opened struct {
	readable
	path    string
	foreign *foreign // nil: it is a recording
}

// openRecording opens a recording or a Parquet file, whatever its name, with
// advice where it is neither.
func openRecording(_ context.Context, path string) (*opened, error) {
	if isParquet(path) {
		return openParquet(path)
	}
	r, err := store.Open(osFS, path)
	switch {
	case errors.Is(err, store.ErrUnsupported):
		return nil, hint(err, "install a newer rezolus; this is %s", version)
	case errors.Is(err, store.ErrForeign) && strings.HasSuffix(path, ".rez"):
		return nil, hint(err, "the Rust implementation's .rez is not read; have it recorded as Parquet")
	case errors.Is(err, store.ErrForeign):
		return nil, hint(err, "recordings (.rzr) and Parquet files of metrics (.parquet) are read")
	case errors.Is(err, syscall.EISDIR):
		return nil, hint(err, "name one of the files within it")
	case err != nil:
		return nil, err
	}
	return &opened{readable: r, path: path}, nil
}

// isParquet looks at the first bytes: names lie.
func isParquet(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [4]byte
	_, err = io.ReadFull(f, magic[:])
	return err == nil && string(magic[:]) == "PAR1"
}

// metadata is that of all runs; a later one's counts where they differ.
func (o *opened) metadata() map[string]string {
	if o.foreign != nil {
		return o.foreign.Metadata()
	}
	return runsMetadata(o.Info())
}

func runsMetadata(info store.Info) map[string]string {
	out := map[string]string{}
	for _, r := range info.Runs {
		maps.Copy(out, r.Meta)
	}
	return out
}

// complain says that the recording that was copied is damaged, or what of a
// Parquet file is not.
func (o *opened) complain(w io.Writer) {
	if o.foreign != nil && o.foreign.cells.Load() > 0 {
		fmt.Fprintf(w, "rezolus: warning: %s: %d histograms are not whole and left out\n", o.path, o.foreign.cells.Load())
	}
	if n := len(o.Info().Damage); n > 0 {
		fmt.Fprintf(w, "rezolus: warning: %s is damaged in %d places, which are left out; rezolus recording check says where\n", o.path, n)
	}
}

// copied says what a copy has.
func copied(path string, made store.Copied) string {
	return fmt.Sprintf("%s: %d ticks, %d bytes", path, made.Ticks, made.Bytes)
}
