// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"rezolus/internal/metric"
)

// reader reads one source and keeps what it gave last.
type reader struct {
	Source
	clock Clock
	every int64
	slot  int64 // the multiple of every it was read for last
	frame metric.Frame

	reads, errors, spent atomic.Uint64 // spent: nanoseconds in Read
	lost                 atomic.Uint64
	lastError            atomic.Pointer[string]

	// A blocking source is read in a goroutine of its own, into pending;
	// the loop takes it from there.
	ask     chan struct{}
	ended   chan struct{}
	since   atomic.Int64 // Mono when the read under way began; 0: none is
	mu      sync.Mutex
	pending metric.Frame
	fresh   bool
}

func newReader(s Source, o SourceOptions, clock Clock) *reader {
	r := &reader{Source: s, clock: clock, every: int64(o.Every), slot: -1}
	if o.Blocking {
		r.ask, r.ended = make(chan struct{}, 1), make(chan struct{})
		go r.follow()
	}
	return r
}

// due tells whether the source is to be read for the tick at wall, and notes
// that it was.
func (r *reader) due(wall int64) bool {
	if r.every == 0 {
		return true
	}
	slot := wall / r.every
	if slot == r.slot {
		return false
	}
	r.slot = slot
	return true
}

// read sets f to the source's frame, whose memory stays the reader's. It
// returns false when there is none: the source failed, or hangs.
func (r *reader) read(f *metric.Frame) bool {
	if r.ask == nil {
		if !r.readInto(&r.frame) {
			return false
		}
		*f = r.frame
		return true
	}
	select {
	case r.ask <- struct{}{}:
	default: // the read before has not ended
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.fresh {
		return false
	}
	r.fresh = false
	r.frame, r.pending = r.pending, r.frame
	*f = r.frame
	return true
}

// follow reads a blocking source each time it is asked to.
func (r *reader) follow() {
	defer close(r.ended)
	var f metric.Frame
	for range r.ask {
		r.since.Store(r.clock.Mono())
		ok := r.readInto(&f)
		r.since.Store(0)
		if ok {
			r.mu.Lock()
			r.pending, f = f, r.pending
			r.fresh = true
			r.mu.Unlock()
		}
	}
}

// readInto reads the source once, counts, and survives its panics.
func (r *reader) readInto(f *metric.Frame) (ok bool) {
	began := r.clock.Mono()
	defer func() {
		if p := recover(); p != nil {
			r.fail(fmt.Errorf("panic: %v", p))
			ok = false
		}
		r.spent.Add(uint64(r.clock.Mono() - began))
	}()
	r.reads.Add(1)
	if err := r.Source.Read(f); err != nil {
		r.fail(err)
		return false
	}
	r.lost.Store(f.Lost)
	return true
}

func (r *reader) fail(err error) {
	r.errors.Add(1)
	text := err.Error()
	r.lastError.Store(&text)
}

// close ends the reader. A source that hangs is left to the end of the
// process.
func (r *reader) close() error {
	if r.ask != nil {
		close(r.ask)
		select {
		case <-r.ended:
		case <-time.After(time.Second):
			return fmt.Errorf("source %s hangs", r.Name())
		}
	}
	return r.Source.Close()
}
