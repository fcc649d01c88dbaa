// SPDX-License-Identifier: Apache-2.0

package hindsight

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

// Dumps are recordings taken out of rings, in a directory of their own. The
// oldest go when there are too many.
type Dumps struct {
	fs    vfs.FS
	dir   string
	keep  int
	bytes int64
	now   func() time.Time
	mu    sync.Mutex // one at a time
}

// NewDumps returns the dumps of a directory: so many, of so many bytes, at
// most. It touches nothing.
func NewDumps(fsys vfs.FS, dir string, keep int, bytes int64) *Dumps {
	return &Dumps{fs: fsys, dir: dir, keep: keep, bytes: bytes, now: time.Now}
}

// Dumped is a dump.
type Dumped struct {
	Path  string `json:"path,omitempty"`
	Ticks uint64 `json:"ticks"`
	Bytes int64  `json:"bytes"`
	Range Range  `json:"time_range"`
}

// Range is from one time to another, in Unix nanoseconds, both inclusive.
type Range struct {
	From int64 `json:"start_ns"`
	To   int64 `json:"end_ns"`
}

const (
	dumpPrefix = "hindsight-"
	dumpExt    = ".rzr"
)

var (
	// ErrNone says that there is no tick in a range.
	ErrNone = errors.New("no ticks")
	// ErrSpace says that a dump would take the space that is left to others.
	ErrSpace = errors.New("no space for the dump")
)

// Excerpt is what the ring has of a range, until release is called; ErrNone if
// that is nothing.
func (k *Keeper) Excerpt(ctx context.Context, r Range) (x *store.Excerpt, release func(), err error) {
	ring, err := k.reachable()
	if err == nil {
		x, release, err = ring.Excerpt(ctx, r.From, r.To)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("dump the ring: %w", err)
	}
	if x.Ticks == 0 {
		release()
		first, last := ring.Bounds()
		return nil, nil, fmt.Errorf("%w between %s and %s; the ring has %s to %s", ErrNone, stamp(r.From), stamp(r.To), stamp(first), stamp(last))
	}
	return x, release, nil
}

// Take dumps a range of a ring into a file that is named by the time, which
// stays until newer ones take its place.
func (d *Dumps) Take(ctx context.Context, k *Keeper, r Range) (Dumped, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x, release, err := k.Excerpt(ctx, r)
	if err != nil {
		return Dumped{}, err
	}
	defer release()
	if err := d.fs.Mkdir(d.dir); err != nil {
		return Dumped{}, fmt.Errorf("make the directory for dumps: %w", err)
	}
	if err := d.room(k, x.Bytes); err != nil {
		return Dumped{}, err
	}
	stem := dumpPrefix + d.now().UTC().Format("20060102T150405Z")
	if k.o.Name != "main" {
		stem += "-" + k.o.Name
	}
	path, err := "", fs.ErrExist
	for n := 1; errors.Is(err, fs.ErrExist) && n < 1000; n++ {
		name := stem
		if n > 1 {
			name = fmt.Sprintf("%s-%d", stem, n)
		}
		path = filepath.Join(d.dir, name+dumpExt)
		err = x.WriteFile(ctx, d.fs, path)
	}
	if err != nil {
		return Dumped{}, fmt.Errorf("dump the ring: %w", err)
	}
	return Dumped{path, x.Ticks, x.Bytes, Range{x.First, x.Last}}, d.limit(filepath.Base(path))
}

// room makes sure that a dump leaves the ring's reserve to others: it would
// have the ring drop what is oldest. What a crash left of a dump goes.
func (d *Dumps) room(k *Keeper, bytes int64) error {
	names, err := d.fs.List(d.dir)
	if err != nil {
		return fmt.Errorf("list the dumps: %w", err)
	}
	for _, n := range names {
		if strings.HasPrefix(n, dumpPrefix) && strings.HasSuffix(n, store.Unfinished) {
			if err := d.fs.Remove(filepath.Join(d.dir, n)); err != nil {
				return fmt.Errorf("remove what an earlier dump left: %w", err)
			}
		}
	}
	_, free, err := d.fs.Space(d.dir)
	if err != nil {
		return fmt.Errorf("ask for the space for dumps: %w", err)
	}
	if left := free - k.Status().Reserve; bytes > left {
		return fmt.Errorf("%w: it takes %d MiB, and %d MiB may be used in %s; download it (rezolus hindsight dump -o FILE), or remove what is not needed there",
			ErrSpace, (bytes+1<<20-1)>>20, max(0, left)>>20, d.dir)
	}
	return nil
}

func stamp(ns int64) string { return time.Unix(0, ns).UTC().Format("2006-01-02T15:04:05.999Z") }

// limit lets the oldest dumps go. The newest stays, however large.
func (d *Dumps) limit(newest string) error {
	names, err := d.fs.List(d.dir)
	if err != nil {
		return fmt.Errorf("list the dumps: %w", err)
	}
	names = slices.DeleteFunc(names, func(n string) bool {
		return !strings.HasPrefix(n, dumpPrefix) || filepath.Ext(n) != dumpExt || n == newest
	})
	slices.SortFunc(names, func(a, b string) int { // by time; the second of a second is "-2"
		return strings.Compare(strings.TrimSuffix(a, dumpExt), strings.TrimSuffix(b, dumpExt))
	})
	sizes, sum := []int64{}, d.size(newest)
	for _, n := range names {
		size := d.size(n)
		sizes, sum = append(sizes, size), sum+size
	}
	for i, n := range names {
		if len(names)-i+1 <= d.keep && (d.bytes <= 0 || sum <= d.bytes) {
			break
		}
		if err := d.fs.Remove(filepath.Join(d.dir, n)); err != nil {
			return fmt.Errorf("remove an old dump: %w", err)
		}
		sum -= sizes[i]
	}
	return nil
}

// size is the length of a dump; one that cannot be opened takes nothing.
func (d *Dumps) size(name string) int64 {
	f, err := d.fs.Open(filepath.Join(d.dir, name))
	if err != nil {
		return 0
	}
	defer f.Close()
	n, _ := f.Size()
	return n
}
