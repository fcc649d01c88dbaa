// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// target is the file a command writes.
type target struct {
	path  string
	force bool
}

func (t *target) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&t.path, "output", "o", "", "the file to write")
	cmd.Flags().BoolVar(&t.force, "force", false, "replace a file of that name")
}

func (t *target) check() error {
	if t.path == "" {
		return hint(usage{errors.New("no output")}, "name the file to write with -o")
	}
	if _, err := os.Lstat(t.path); err == nil && !t.force {
		return t.there()
	}
	return nil
}

func (t *target) there() error {
	return hint(fmt.Errorf("%s is there already", t.path), "name another file with -o, or replace it with --force")
}

// recording checks the target of a command that writes recordings, whose name
// must not promise another form.
func (t *target) recording() error {
	if form, known := extensions[strings.ToLower(filepath.Ext(t.path))]; known && form != "rzr" {
		return hint(usage{fmt.Errorf("%s: this writes recordings (.rzr)", t.path)}, "rezolus recording convert makes %s of one", form)
	}
	return t.check()
}

// produce has a file made next to where it belongs, and gives it its name when
// it is whole. What is left of one that is not is taken away.
func (t *target) produce(make func(path string) error) (err error) {
	if err := t.check(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(t.path), ".rezolus-")
	if err != nil {
		return fmt.Errorf("write %s: %w", t.path, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	made := filepath.Join(dir, filepath.Base(t.path))
	if err := make(made); err != nil {
		return err
	}
	if err := t.publish(made); err != nil {
		return err
	}
	if err := osFS.SyncDir(filepath.Dir(t.path)); err != nil {
		return fmt.Errorf("sync the directory of %s: %w", t.path, err)
	}
	return nil
}

// publish gives the file its name. Only with force it takes another's.
func (t *target) publish(made string) error {
	if !t.force {
		err := os.Link(made, t.path)
		if err == nil {
			return nil
		}
		if errors.Is(err, fs.ErrExist) {
			return t.there()
		}
		// A file system without links.
		if !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.ENOTSUP) && !errors.Is(err, syscall.ENOSYS) {
			return fmt.Errorf("write %s: %w", t.path, err)
		}
		if err := t.check(); err != nil {
			return err
		}
	}
	if err := os.Rename(made, t.path); err != nil {
		return fmt.Errorf("write %s: %w", t.path, err)
	}
	return nil
}

// writeFile has a file of the path written and synced.
func writeFile(path string, write func(*os.File) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
