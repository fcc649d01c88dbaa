// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"syscall"
	"testing"
)

// TestCopyRange appends a part of one file to another, among writes, on each
// pair of file systems.
func TestCopyRange(t *testing.T) {
	dir, mem := t.TempDir(), NewMem()
	data := bytes.Repeat([]byte("0123456789"), 100_000)
	for _, c := range []struct {
		name     string
		from, to FS
	}{{"os", OS, OS}, {"os to mem", OS, mem}, {"mem to os", mem, OS}, {"mem", mem, mem}, {"faulty", mem, NewFaulty(mem)}} {
		path := filepath.Join(dir, c.name)
		src := create(t, c.from, path+".src")
		_, err := src.Write(data)
		must(t, err)
		dst := create(t, c.to, path)
		_, err = dst.Write([]byte("head"))
		must(t, err)
		must(t, CopyRange(dst, src, 3, 700_001))
		_, err = dst.Write([]byte("middle"))
		must(t, err)
		must(t, CopyRange(dst, src, 999_990, 10))
		must(t, CopyRange(dst, src, 0, 0))
		if err := CopyRange(dst, src, 999_995, 6); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: beyond the end: %v", c.name, err)
		}
		want := bytes.Join([][]byte{[]byte("head"), data[3:700_004], []byte("middle"), data[999_990:], data[999_995:]}, nil)
		got := make([]byte, len(want)+1)
		if n, err := dst.ReadAt(got, 0); n != len(want) || err != io.EOF || !bytes.Equal(got[:n], want) {
			t.Errorf("%s: %d bytes, want %d: %v", c.name, n, len(want), err)
		}
		must(t, src.Close())
		must(t, dst.Close())
	}
}

func TestCopyRangeOntoFullDisk(t *testing.T) {
	m := NewMem()
	f := NewFaulty(m)
	src := create(t, m, "/src")
	_, err := src.Write(make([]byte, 1000))
	must(t, err)
	dst := create(t, f, "/dst")
	f.SetSpace(100)
	if err := CopyRange(dst, src, 0, 1000); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v, want ENOSPC", err)
	}
	must(t, src.Close())
	if err := CopyRange(dst, create(t, OS, filepath.Join(t.TempDir(), "x")), 0, 1); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("of an empty file: %v", err)
	}
}
