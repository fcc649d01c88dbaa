// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, fs FS, name string) File {
	t.Helper()
	f, err := fs.Create(name)
	must(t, err)
	return f
}

// TestFileSystemsAgree holds Mem and a Faulty without faults against the
// operating system.
func TestFileSystemsAgree(t *testing.T) {
	f := func(name string, fsys FS, dir string) {
		t.Helper()
		path := filepath.Join(dir, "a")
		w := create(t, fsys, path)
		for _, s := range []string{"hello", ", ", "world"} {
			if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
				t.Fatalf("%s: wrote %d: %v", name, n, err)
			}
		}
		must(t, w.Truncate(5))
		_, err := w.Write([]byte("!"))
		must(t, err)
		must(t, w.Sync())
		must(t, fsys.SyncDir(dir))
		r, err := fsys.Open(path)
		must(t, err)
		b := make([]byte, 10)
		if n, err := r.ReadAt(b, 1); n != 5 || err != io.EOF || string(b[:5]) != "ello!" {
			t.Errorf("%s: read %q: %v", name, b[:n], err)
		}
		if n, err := r.Size(); n != 6 || err != nil {
			t.Errorf("%s: size %d: %v", name, n, err)
		}
		if _, err := r.Write([]byte("x")); err == nil {
			t.Errorf("%s: wrote to a file opened for reading", name)
		}
		if _, err := fsys.Create(path); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: created twice: %v", name, err)
		}
		if _, err := fsys.Open(path + "x"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: opened what is not there: %v", name, err)
		}
		must(t, r.Close())
		must(t, w.Close())
		names(t, name, fsys, dir)
		must(t, fsys.Remove(path))
		if _, err := fsys.Open(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: opened what was removed: %v", name, err)
		}
	}
	f("os", OS, t.TempDir())
	f("mem", NewMem(), "/d")
	f("faulty", NewFaulty(NewMem()), "/d")
}

// names tries what changes names only. File a is there before and after.
func names(t *testing.T, name string, fsys FS, dir string) {
	t.Helper()
	a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	list := func(want ...string) {
		t.Helper()
		got, err := fsys.List(dir)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: list %q, want %q: %v", name, got, want, err)
		}
	}
	lock := filepath.Join(t.TempDir(), "lock")
	l, err := fsys.Lock(lock)
	must(t, err)
	if _, err := fsys.Lock(lock); !errors.Is(err, ErrLocked) {
		t.Errorf("%s: locked twice: %v", name, err)
	}
	must(t, l.Close())
	l, err = fsys.Lock(lock)
	must(t, err)
	must(t, l.Close())
	must(t, fsys.Mkdir(filepath.Join(dir, "sub", "sub")))
	must(t, fsys.Link(a, b))
	if err := fsys.Link(a, b); !errors.Is(err, fs.ErrExist) {
		t.Errorf("%s: linked twice: %v", name, err)
	}
	list("a", "b")
	must(t, fsys.Rename(b, c))
	if err := fsys.Rename(b, c); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: renamed twice: %v", name, err)
	}
	list("a", "c")
	must(t, create(t, fsys, b).Close())
	must(t, fsys.Rename(c, b))
	list("a", "b")
	if f, err := fsys.Open(b); err != nil {
		t.Errorf("%s: %v", name, err)
	} else if n, err := f.Size(); n != 6 || err != nil {
		t.Errorf("%s: a file renamed over another has %d bytes: %v", name, n, err)
	}
	must(t, fsys.Remove(b))
	first, err := fsys.Identify(dir)
	must(t, err)
	if again, err := fsys.Identify(dir); err != nil || again != first || first.Device == 0 {
		t.Errorf("%s: %v is %v: %v", name, first, again, err)
	}
	if total, free, err := fsys.Space(dir); err != nil || total <= 0 || free <= 0 || free > total {
		t.Errorf("%s: %d of %d bytes free: %v", name, free, total, err)
	}
}

// TestIdentify tells what took a name's place from what had it.
func TestIdentify(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	if _, err := OS.Identify(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	must(t, OS.Mkdir(dir))
	before, err := OS.Identify(dir)
	must(t, err)
	must(t, OS.Rename(dir, dir+".old"))
	must(t, OS.Mkdir(dir))
	after, err := OS.Identify(dir)
	must(t, err)
	moved, err := OS.Identify(dir + ".old")
	if err != nil || moved != before || after.Inode == before.Inode || after.Device != before.Device {
		t.Errorf("%v was moved to %v, and %v is in its place: %v", before, moved, after, err)
	}
	if proc, err := OS.Identify("/proc"); err != nil || proc.Device == after.Device {
		t.Errorf("another file system: %v: %v", proc, err)
	}
}

func TestCrashKeepsWhatWasSynced(t *testing.T) {
	first, second := bytes.Repeat([]byte{'a'}, 9000), bytes.Repeat([]byte{'b'}, 9000)
	m := NewMem()
	f := create(t, m, "/d/a")
	_, err := f.Write(first)
	must(t, err)
	must(t, f.Sync())
	must(t, m.SyncDir("/d"))
	_, err = f.Write(second)
	must(t, err)
	create(t, m, "/d/b") // its name is not synced
	var whole, none, torn, named int
	for seed := range uint64(200) {
		c := m.CrashClone(rand.NewPCG(seed, 0))
		got := c.ReadFile("/d/a")
		if !bytes.HasPrefix(got, first) {
			t.Fatalf("seed %d: synced bytes are gone", seed)
		}
		switch rest := got[len(first):]; {
		case bytes.Equal(rest, second):
			whole++
		case len(rest) == 0:
			none++
		default:
			torn++
		}
		if c.ReadFile("/d/b") != nil {
			named++
		}
	}
	if whole == 0 || none == 0 || torn == 0 {
		t.Errorf("%d whole, %d without, %d torn: want some of each", whole, none, torn)
	}
	if !bytes.Equal(m.ReadFile("/d/a")[9000:], second) {
		t.Error("a crash clone changed its origin")
	}
}

func TestCrashNames(t *testing.T) {
	m := NewMem()
	m.WriteFile("/d/old", []byte("x"))
	must(t, m.Remove("/d/old"))
	f := create(t, m, "/d/new")
	_, err := f.Write([]byte("y"))
	must(t, err)
	must(t, f.Sync())
	var old, fresh int
	for seed := range uint64(100) {
		c := m.CrashClone(rand.NewPCG(seed, 0))
		if c.ReadFile("/d/old") != nil {
			old++
		}
		if c.ReadFile("/d/new") != nil {
			fresh++
		}
	}
	if old == 0 || old == 100 || fresh == 0 || fresh == 100 {
		t.Errorf("of 100 crashes the removed name survives %d, the new one %d: want some of each", old, fresh)
	}
	must(t, m.SyncDir("/d"))
	if c := m.CrashClone(rand.NewPCG(1, 0)); c.ReadFile("/d/old") != nil || string(c.ReadFile("/d/new")) != "y" {
		t.Error("a crash undid names that were synced")
	}
}

func TestFaults(t *testing.T) {
	boom := errors.New("boom")
	m := NewFaulty(NewMem())
	f := create(t, m, "a")
	m.FailAt(2, boom)
	_, err := f.Write([]byte("1"))
	must(t, err)
	if err := f.Sync(); err != boom {
		t.Errorf("the second operation: %v, want boom", err)
	}
	must(t, f.Sync())
	m.SetSpace(3)
	if n, err := f.Write([]byte("12345")); n != 3 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("wrote %d: %v, want 3 and ENOSPC", n, err)
	}
	if n, err := f.Size(); n != 4 || err != nil {
		t.Errorf("size %d: %v, want 4", n, err)
	}
	if n, err := f.Write([]byte("1")); n != 0 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("wrote %d: %v, want ENOSPC", n, err)
	}
	m.SetSpace(1)
	_, err = f.Write([]byte("1"))
	must(t, err)
	if m.Count() != 7 {
		t.Errorf("%d operations, want 7", m.Count())
	}
	if _, free, err := m.Space("."); free != 0 || err != nil {
		t.Errorf("%d bytes are free, want none: %v", free, err)
	}
	m.FailAll(syscall.EROFS)
	if _, err := m.Create("b"); !errors.Is(err, syscall.EROFS) {
		t.Errorf("created on a read-only file system: %v", err)
	}
	if err := m.Rename("a", "b"); !errors.Is(err, syscall.EROFS) {
		t.Errorf("renamed on a read-only file system: %v", err)
	}
	m.FailAll(nil)
	must(t, m.Rename("a", "b"))
}
