// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"rezolus/internal/metric"
)

// reader reads one source and keeps what it gave last.
type reader struct {
	Source
	clock Clock
	log   *slog.Logger
	every atomic.Int64 // nanoseconds; 0: at every tick; negative: never

	reads, errors, spent atomic.Uint64 // spent: nanoseconds in Read
	lost                 atomic.Uint64
	lastError            atomic.Pointer[string]
	since                atomic.Int64 // Mono when the read under way began; 0: none is

	// The loop's own.
	slot   int64 // the multiple of every it was read for last
	frame  metric.Frame
	number uint64 // of the frame, from 1
	at     int64  // Mono when it was there
	good   bool   // the last read gave it

	// A blocking source is read in a goroutine of its own, into spare; the
	// loop takes it from there.
	ask     chan struct{}
	ended   chan struct{}
	mu      sync.Mutex
	spare   metric.Frame
	spareAt int64
	news    news
}

// news is what the loop has not heard of a blocking source.
type news int

const (
	nothing news = iota
	arrived
	failed
)

func newReader(s Source, o SourceOptions, clock Clock, log *slog.Logger) *reader {
	r := &reader{Source: s, clock: clock, log: log, slot: -1}
	r.every.Store(int64(o.Every))
	if o.Blocking {
		r.ask, r.ended = make(chan struct{}, 1), make(chan struct{})
	}
	return r
}

func (r *reader) start() {
	if r.ask != nil {
		go r.follow()
	}
}

// due tells whether the source is to be read at wall, and notes that it was.
func (r *reader) due(wall int64) bool {
	every := r.every.Load()
	if every <= 0 {
		return every == 0
	}
	slot := wall / every
	if slot == r.slot {
		return false
	}
	r.slot = slot
	return true
}

// take reads the source if it is due, and tells whether it did. It never waits
// for one that blocks.
func (r *reader) take(now, wall int64) (did bool) {
	due := r.due(wall)
	switch {
	case r.every.Load() < 0:
		if r.ask != nil {
			r.hear()
		}
		r.good = false // what it gave last does not come back with it
	case r.ask != nil:
		r.hear()
		if due {
			select {
			case r.ask <- struct{}{}:
			default: // it has not even begun with the read before
			}
		}
	case due:
		if r.good = r.read(&r.frame); r.good {
			r.number++
			r.at = now
		}
		return true
	}
	return false
}

// current tells whether there is a frame, and not one of long ago, for who
// comes once an interval. (Twice, as neither ticks nor reads are exact.)
func (r *reader) current(now, interval int64) bool {
	every := r.every.Load()
	return r.good && every >= 0 && now-r.at <= 2*max(every, interval)
}

// hear takes what a blocking source gave since.
func (r *reader) hear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.news {
	case arrived:
		r.frame, r.spare = r.spare, r.frame
		r.number++
		r.at, r.good = r.spareAt, true
	case failed:
		r.good = false
	}
	r.news = nothing
}

// follow reads a blocking source each time it is asked to.
func (r *reader) follow() {
	defer close(r.ended)
	var f metric.Frame
	for range r.ask {
		ok := r.read(&f)
		r.mu.Lock()
		r.news = failed
		if ok {
			r.spare, f = f, r.spare
			r.spareAt, r.news = r.clock.Mono(), arrived
		}
		r.mu.Unlock()
	}
}

// read reads the source once, counts, and survives its panics.
func (r *reader) read(f *metric.Frame) (ok bool) {
	began := r.clock.Mono()
	r.since.Store(began)
	defer func() {
		if p := recover(); p != nil {
			r.fail(fmt.Errorf("panic: %v", p))
			ok = false
		}
		r.since.Store(0)
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

// fail keeps the error for the status. It logs the first only: the same one
// may come at every tick.
func (r *reader) fail(err error) {
	if r.errors.Add(1) == 1 {
		r.log.Warn("a source cannot be read; /status counts how often", "source", r.Name(), "error", err)
	}
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
			return fmt.Errorf("close source %s: its read hangs", r.Name())
		}
	}
	return r.Source.Close()
}
