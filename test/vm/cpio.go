// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// archive writes an initramfs in cpio's newc form
// (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	w     io.Writer
	inode int
	err   error
	dirs  map[string]bool
}

func (a *archive) entry(name string, mode uint32, body []byte) {
	if a.err != nil {
		return
	}
	a.inode++
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.inode, mode, 0, 0, 1, 0, len(body), 0, 0, 0, 0, len(name)+1, 0, name)
	_, a.err = a.w.Write(append(pad([]byte(header)), pad(body)...))
}

// pad appends zero bytes up to a multiple of four.
func pad(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// dir adds a directory and its parents, each once.
func (a *archive) dir(name string) {
	if name == "." || a.dirs[name] {
		return
	}
	a.dir(filepath.Dir(name))
	a.dirs[name] = true
	a.entry(name, 0o040755, nil)
}

// file adds a copy of the file at path.
func (a *archive) file(name, path string, mode uint32) {
	body, err := os.ReadFile(path)
	if err != nil {
		a.err = err
		return
	}
	a.dir(filepath.Dir(name))
	a.entry(name, 0o100000|mode, body)
}

// tree adds everything below root under name; a missing root is empty.
func (a *archive) tree(name, root string) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err == nil {
			a.file(filepath.Join(name, rel), path, 0o644)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		a.err = err
	}
}

func (a *archive) end() error {
	a.entry("TRAILER!!!", 0, nil)
	return a.err
}
