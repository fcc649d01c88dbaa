// SPDX-License-Identifier: Apache-2.0

// Package ring keeps the latest ticks on disk: a directory of recordings, the
// last of which grows while the oldest go. It survives restarts of the agent
// and of the machine, a full disk and one that fails or is unmounted, and
// somebody who removes its files; what it could not keep it counts, and marks as
// a gap.
//
// A file NNN.log has ticks in rows, as they came. When it is full the next
// one is begun, and NNN.log is sealed into NNN.rzr, which has them in columns.
// Each of them is a recording like any other (docs/format.md), and at every
// moment all ticks are in one of the two.
//
// The package knows nothing of where ticks come from or of who reads them;
// two rings make two resolutions.
package ring

import (
	"context"
	"errors"
	"io"
	"math"
	"sync"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

// Options say what a ring keeps. Dir must be set.
type Options struct {
	Dir      string            // its own; it is made where it is missing
	Interval time.Duration     // of the ticks; stored in the files
	Meta     map[string]string // stored in the files
	Age      time.Duration     // ticks older than this go; 0: only Bytes counts
	Bytes    int64             // the most the files may take; 0: only Age counts
	// Reserve is the space that is left to others on the file system. The
	// oldest files go, and in the end all but the last, to keep to it.
	// 0: a twentieth of the file system, or 1 GiB if that is less.
	Reserve int64
	Sync    time.Duration // what a power cut may cost; 0: store.DefaultSync
	// Segment is the length of a file in time. 0: a 48th of Age, between
	// ten seconds and an hour.
	Segment time.Duration
	// Absent is the reason of the gap between what was adopted and the first
	// tick, within one life of the machine. Empty: "the agent did not run".
	Absent string
}

const (
	// logBytes is the size at which a log is full: what must be decoded row
	// by row to read the latest ticks, and held in memory to seal them.
	logBytes = 4 << 20
	// lockName is the file by which a process takes the directory.
	lockName = "lock"
	// retry is the time from one attempt of what failed to the next.
	retry = time.Second
	// lookEvery is the time from one look at the limits to the next.
	// It also finds what somebody took away, which costs the ticks since.
	lookEvery = 2 * time.Second
	// patience is how long a log may fail before another is tried.
	patience = 5 * time.Second
)

func (o Options) withDefaults() Options {
	if o.Sync == 0 {
		o.Sync = store.DefaultSync
	}
	if o.Segment <= 0 {
		o.Segment = max(10*time.Second, min(time.Hour, o.Age/48))
	}
	if o.Absent == "" {
		o.Absent = "the agent did not run"
	}
	return o
}

// Ring is an open ring. It is safe for concurrent use.
type Ring struct {
	fs   vfs.FS
	o    Options
	wake chan struct{} // something is to be done besides putting
	done chan struct{} // that has ended

	// Of whoever works.
	lock    io.Closer // nil: the ring is nowhere
	home    vfs.ID    // the directory
	beneath []uint64  // devices that it is on where its own is not mounted

	// Of whoever puts.
	putting sync.Mutex
	writer  *store.Writer
	began   int64     // mono of the live log's first tick
	last    mark      // the last tick that was put
	restart bool      // the next log begins with the gap since the last one
	taken   store.Gap // ticks that were put and taken away, of which none tells yet
	news    error     // of which nobody was told yet
	next    int64     // mono from which on a log may be begun again
	look    int64     // mono of the next look at the limits
	failing int64     // mono since which the live log fails; 0: it does not
	lost    store.Gap // ticks that are in no log, and of which none tells yet

	mu       sync.Mutex
	files    []*file // ascending; the last is the live log, if there is one
	number   uint64  // of the next file
	spare    *spare  // a log that is ready to be the next one
	wanted   bool    // one is wanted
	newest   mark
	leaving  int64 // bytes of files that went, but for those who read them
	closing  bool
	gone     error // why the ring is nowhere; nil: it is where it was
	count    counts
	trouble  error // of the last tick
	hindered error // of the last work
}

// mark is when a tick was.
type mark struct {
	wall, mono, interval int64
	missed               uint64 // just before it
	boot                 [16]byte
}

// counts are what a ring has counted since it was opened.
type counts struct {
	ticks, lost  uint64
	dropped      uint64
	droppedBytes int64
}

// spare is a log without ticks.
type spare struct {
	number uint64
	writer *store.Writer
}

// Open opens the ring in a directory and adopts the files that are there,
// of whatever life of whatever agent. vfs.ErrLocked says that another
// process has it.
func Open(fsys vfs.FS, o Options) (*Ring, error) {
	r, err := open(fsys, o)
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(r.done)
		for range r.wake {
			r.work()
		}
	}()
	r.poke()
	return r, nil
}

// open is Open without anybody to do the work.
func open(fsys vfs.FS, o Options) (*Ring, error) {
	r := &Ring{fs: fsys, o: o.withDefaults(), wake: make(chan struct{}, 1), done: make(chan struct{}), next: math.MinInt64}
	if err := r.enter(); err != nil {
		return nil, err
	}
	return r, nil
}

// poke has the work done soon.
func (r *Ring) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Put adds a tick. It waits for nothing but the kernel's taking the bytes. A
// tick that cannot be written is counted and becomes part of a gap; later
// ones may work again.
func (r *Ring) Put(s *metric.Snapshot) error {
	now := mark{wall: s.Wall, mono: s.Mono, interval: s.Interval, missed: s.Missed}
	if s.Run != nil {
		now.boot = s.Run.Boot
	}
	r.putting.Lock()
	defer r.putting.Unlock()
	kept, err := r.put(s, now)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest = now
	if live := r.live(); live != nil && r.writer != nil {
		live.bytes = r.writer.Size()
	}
	r.trouble = err
	if kept {
		r.count.ticks++
	} else {
		r.count.lost++
	}
	return err
}

// put reports whether the tick is in a log. An error without that is one of
// syncing: a power cut may take ticks that are there.
func (r *Ring) put(s *metric.Snapshot, now mark) (kept bool, err error) {
	if r.writer == nil || r.isFull(now) {
		if err := r.rotate(now); err != nil {
			r.miss(now, err)
			r.news = nil
			r.lookAround(now, err)
			return false, err
		}
	}
	err = r.writer.Put(s)
	switch kept = r.writer.Lost().Ticks == 0; {
	case kept:
		r.last, r.failing = now, 0
	case r.failing == 0:
		r.failing = now.mono
	}
	r.lookAround(now, err)
	if err == nil {
		err, r.news = r.news, nil
	}
	return kept, err
}

// lookAround has the work done every now and then, and sooner where something
// fails.
func (r *Ring) lookAround(now mark, err error) {
	if now.mono >= r.look || err != nil && now.mono >= r.look-int64(lookEvery-retry) {
		r.look = now.mono + int64(lookEvery)
		r.poke()
	}
}

// miss counts a tick for which there is not even a file, and those that were
// missed before it, of which it would have told.
func (r *Ring) miss(now mark, err error) {
	if r.lost.Ticks == 0 {
		r.lost.From, r.lost.Reason = now.wall-int64(now.missed)*now.interval, err.Error()
	}
	r.lost.To = now.wall
	r.lost.Ticks += 1 + now.missed
}

// isFull reports whether the live log is to be left, and has the next one
// prepared in good time. One that fails is left when another can be had: it
// may be only that file.
func (r *Ring) isFull(now mark) bool {
	size, age := r.writer.Size(), time.Duration(now.mono-r.began)
	failing := r.failing != 0
	if size < logBytes/2 && age < r.o.Segment/2 && age >= 0 && !failing {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spare == nil && !r.wanted {
		r.wanted = true
		r.poke()
	}
	if failing {
		return r.spare != nil && now.mono-r.failing >= int64(patience)
	}
	return r.spare != nil && (size >= logBytes || age >= r.o.Segment || age < 0)
}

// rotate begins the next log.
func (r *Ring) rotate(now mark) error {
	r.mu.Lock()
	ready, gone := r.spare, r.gone
	r.spare = nil
	r.mu.Unlock()
	if gone != nil {
		return gone
	}
	if ready == nil { // the first of all
		if now.mono < r.next {
			return errors.New("no log can be begun; it is tried every second")
		}
		var err error
		if ready, err = r.prepare(); err != nil {
			r.next = now.mono + int64(retry)
			return err
		}
	}
	old := r.writer
	if old != nil && r.failing != 0 {
		r.lost = old.Lost()
	}
	r.tell(ready.writer, now)
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.live(); f != nil {
		f.until, f.writer, f.broken = r.last, old, r.failing != 0
	}
	r.files = append(r.files, &file{number: ready.number, log: true, first: now.wall,
		h: &handle{path: r.path(ready.number, logExt)}})
	r.writer, r.began, r.failing = ready.writer, now.mono, 0
	r.poke()
	return nil
}

// tell writes what is missing before a tick into a log that has none.
func (r *Ring) tell(w *store.Writer, now mark) {
	if r.taken.Ticks > 0 && w.WriteGap(r.taken) == nil {
		r.taken = store.Gap{}
	}
	if r.restart && w.WriteGap(r.sinceBefore(now)) == nil {
		r.restart = false
	}
	if r.lost.Ticks > 0 && w.WriteGap(r.lost) == nil {
		r.lost = store.Gap{}
	}
}

// sinceBefore is the gap between what was adopted and the first tick, or the
// first of those that are lost since, of which another gap tells.
func (r *Ring) sinceBefore(now mark) store.Gap {
	reason := r.o.Absent
	if r.last.boot != now.boot {
		reason = "the machine did not run"
	}
	next := store.Tick{Wall: now.wall, Interval: now.interval, Missed: now.missed}
	if r.lost.Ticks > 0 {
		next.Wall, next.Missed = r.lost.From, 0
	}
	return next.GapFrom(r.last.wall+max(1, r.last.interval), reason)
}

// Event adds a line of text with a time.
func (r *Ring) Event(e store.Event) error {
	r.putting.Lock()
	defer r.putting.Unlock()
	if r.writer == nil {
		return errors.New("the ring has no tick yet; an event needs one before it")
	}
	return r.writer.WriteEvent(e)
}

// Gap marks that ticks are missing that were never put, and why. Before the
// first tick it does nothing: that one tells of all that is missing.
func (r *Ring) Gap(g store.Gap) error {
	r.putting.Lock()
	defer r.putting.Unlock()
	switch {
	case r.writer != nil:
		return r.writer.WriteGap(g)
	case r.lost.Ticks > 0: // they are amid those that are lost
		r.lost.To = max(r.lost.To, g.To)
		r.lost.Ticks += g.Ticks
	case !r.restart && r.last != mark{}:
		r.lost = g
	}
	return nil
}

// Sync returns when every tick put so far is on the disk.
func (r *Ring) Sync() error {
	r.putting.Lock()
	defer r.putting.Unlock()
	if r.writer == nil {
		return nil
	}
	return r.writer.Sync()
}

// Close closes the ring: it is whole and on the disk. Nobody may put or read
// any more.
func (r *Ring) Close() error {
	close(r.wake)
	<-r.done
	return r.close()
}

func (r *Ring) close() error {
	var err error
	if r.writer != nil {
		err = r.writer.Close()
	}
	r.mu.Lock()
	r.closing = true
	if live := r.live(); live != nil {
		live.until = r.last
	}
	ready := r.spare
	r.mu.Unlock()
	if ready != nil {
		err = errors.Join(err, ready.writer.Abandon(), r.fs.Remove(r.path(ready.number, logExt)))
	}
	r.work()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.files {
		err = errors.Join(err, f.h.shut())
	}
	return errors.Join(err, r.release())
}

// Status is how a ring fares.
type Status struct {
	Segments     int   // files
	Bytes        int64 // that they take
	Oldest       int64 // Unix nanoseconds of the first tick and the last; 0: none
	Newest       int64
	Ticks        uint64 // put since the ring was opened
	Lost         uint64 // that could not be written since
	Dropped      uint64 // files that were dropped to keep the limits
	DroppedBytes int64
	Free         int64 // bytes that are free on the file system, for all
	Reserve      int64 // of which so many are left to others
	Trouble      error // what does not work at present; nil: all does
}

// Lost is how many ticks could not be written since the ring was opened. Other
// than Status it asks the disk nothing.
func (r *Ring) Lost() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count.lost
}

// Status is how the ring fares.
func (r *Ring) Status() Status {
	reserve, free, _ := r.space()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{Segments: len(r.files), Ticks: r.count.ticks, Lost: r.count.lost, Dropped: r.count.dropped,
		DroppedBytes: r.count.droppedBytes, Free: free, Reserve: reserve, Trouble: errors.Join(r.trouble, r.hindered), Newest: r.newest.wall}
	for _, f := range r.files {
		s.Bytes += f.bytes
	}
	s.Oldest = r.oldest()
	return s
}

// Excerpt lays out the ticks within [from, to], Unix nanoseconds, both
// inclusive, exactly, as a recording of their own. Until release is called the
// ring's files that it is made of stay on the disk, though the ring may have
// let them go; putting goes on meanwhile.
func (r *Ring) Excerpt(ctx context.Context, from, to int64) (x *store.Excerpt, release func(), err error) {
	all, release, err := r.hold()
	if err != nil {
		return nil, nil, err
	}
	if x, err = store.NewExcerpt(ctx, from, to, all...); err != nil {
		release()
		return nil, nil, err
	}
	return x, sync.OnceFunc(release), nil
}
