// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
)

// Mem is a file system in memory that remembers what was synced, so that a
// test can ask what a power cut would leave (CrashClone).
type Mem struct {
	mu     sync.Mutex
	locks  map[string]bool
	names  map[string]*node // as the running system sees them
	synced map[string]*node // as the disk has them
}

// NewMem returns an empty file system.
func NewMem() *Mem {
	return &Mem{names: map[string]*node{}, synced: map[string]*node{}}
}

// node is a file's content: what the system sees, what the disk has for
// sure, and the changes between the two in order.
type node struct {
	data    []byte
	durable []byte
	pending []change
}

// change is a write at off, or a truncation to off where data is nil.
type change struct {
	off  int
	data []byte
}

func (n *node) apply(c change) {
	if c.data == nil {
		n.data = n.data[:min(c.off, len(n.data))]
		return
	}
	if end := c.off + len(c.data); end > len(n.data) {
		n.data = append(n.data, make([]byte, end-len(n.data))...)
	}
	copy(n.data[c.off:], c.data)
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names[name] != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	n := &node{}
	m.names[name] = n
	return &memFile{m: m, n: n, writable: true}, nil
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.names[name]
	if n == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &memFile{m: m, n: n}, nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names[name] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	delete(m.names, name)
	return nil
}

// Rename implements FS. After a crash before the next SyncDir each of the two
// names may be as before, which is more than a real file system allows.
func (m *Mem) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.names[from]
	if n == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	delete(m.names, from)
	m.names[to] = n
	return nil
}

// Link implements FS.
func (m *Mem) Link(name, more string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.names[name]
	if n == nil {
		return &fs.PathError{Op: "link", Path: name, Err: fs.ErrNotExist}
	}
	if m.names[more] != nil {
		return &fs.PathError{Op: "link", Path: more, Err: fs.ErrExist}
	}
	m.names[more] = n
	return nil
}

// List implements FS. Directories are there without being made.
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name := range m.names {
		if filepath.Dir(name) == filepath.Clean(dir) {
			names = append(names, filepath.Base(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

// Mkdir implements FS.
func (m *Mem) Mkdir(string) error { return nil }

// Lock implements FS. A crash releases it.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[name] {
		return nil, &fs.PathError{Op: "lock", Path: name, Err: ErrLocked}
	}
	if m.locks == nil {
		m.locks = map[string]bool{}
	}
	m.locks[name] = true
	if m.names[name] == nil {
		m.names[name] = &node{}
	}
	return memLock{m, name}, nil
}

type memLock struct {
	m    *Mem
	name string
}

func (l memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.locks, l.name)
	return nil
}

// Identify implements FS. All names are directories, which are one.
func (m *Mem) Identify(string) (ID, error) { return ID{Device: 1, Inode: 1}, nil }

// Space implements FS: a terabyte, without what the files take.
func (m *Mem) Space(string) (total, free int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	total = 1 << 40
	free = total
	for _, n := range m.names {
		free -= int64(len(n.data))
	}
	return total, free, nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	in := func(name string, _ *node) bool { return filepath.Dir(name) == filepath.Clean(dir) }
	maps.DeleteFunc(m.synced, in)
	for name, n := range m.names {
		if in(name, n) {
			m.synced[name] = n
		}
	}
	return nil
}

// WriteFile puts a whole file there, synced, in place of any other.
func (m *Mem) WriteFile(name string, data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := &node{data: slices.Clone(data), durable: slices.Clone(data)}
	m.names[name], m.synced[name] = n, n
}

// ReadFile is the present content of a file, nil if there is none.
func (m *Mem) ReadFile(name string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.names[name]; n != nil {
		return slices.Clone(n.data)
	}
	return nil
}

// CrashClone is what the disk holds after a power cut at this moment. What
// was synced is there. Each name and each change after the last sync
// survives or not as src decides; a write may also be torn: of its sectors
// (512 B or 4 KiB) some are written and the others are zero or as before.
func (m *Mem) CrashClone(src rand.Source) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := rand.New(src)
	disk := maps.Clone(m.synced)
	union := maps.Clone(m.synced)
	maps.Copy(union, m.names)
	for _, name := range slices.Sorted(maps.Keys(union)) { // a fixed order for a fixed src
		if now := m.names[name]; now != m.synced[name] && r.IntN(2) == 0 {
			if disk[name] = now; now == nil {
				delete(disk, name)
			}
		}
	}
	c := NewMem()
	for _, name := range slices.Sorted(maps.Keys(disk)) {
		n := &node{data: slices.Clone(disk[name].durable)}
		for _, ch := range disk[name].pending {
			crash(n, ch, r)
		}
		n.durable = slices.Clone(n.data)
		c.names[name], c.synced[name] = n, n
	}
	return c
}

// crash applies what r lets survive of one change.
func crash(n *node, c change, r *rand.Rand) {
	switch r.IntN(4) {
	case 0:
		return
	case 1:
		n.apply(c)
		return
	}
	if c.data == nil {
		n.apply(c)
		return
	}
	sector := []int{512, 4096}[r.IntN(2)]
	for at := 0; at < len(c.data); {
		end := min(at+sector-(c.off+at)%sector, len(c.data))
		if r.IntN(2) == 0 {
			n.apply(change{c.off + at, c.data[at:end]})
		}
		at = end
	}
}

type memFile struct {
	m        *Mem
	n        *node
	writable bool
	closed   bool
}

func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return 0, fs.ErrClosed
	}
	if off > int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.n.data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// change records and applies one change, if the file may be written.
func (f *memFile) change(c change) error {
	switch {
	case f.closed:
		return fs.ErrClosed
	case !f.writable:
		return fmt.Errorf("write to a file opened for reading: %w", fs.ErrPermission)
	}
	f.n.apply(c)
	f.n.pending = append(f.n.pending, c)
	return nil
}

func (f *memFile) Write(b []byte) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if len(b) == 0 {
		return 0, nil
	}
	if err := f.change(change{len(f.n.data), slices.Clone(b)}); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.change(change{off: int(size)})
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	f.n.durable, f.n.pending = slices.Clone(f.n.data), nil
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return int64(len(f.n.data)), nil
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	return nil
}
