// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// progress is the line that moves while recording, on a terminal.
type progress struct {
	r     *recorder
	quiet bool

	mu    sync.Mutex
	shown time.Time
	ticks uint64 // when it was shown
	size  int64
}

// showEvery is the time from one line to the next.
const showEvery = 500 * time.Millisecond

func newProgress(r *recorder) *progress {
	return &progress{r: r, quiet: !term.IsTerminal(int(os.Stderr.Fd())), shown: r.began}
}

// tick shows how it goes, if it is time.
func (p *progress) tick() {
	if p.quiet {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	took := now.Sub(p.shown)
	if took < showEvery {
		return
	}
	var ticks, missed uint64
	var size int64
	for _, t := range p.r.tapes {
		ticks, missed, size = ticks+t.ticks.Load(), missed+t.missed.Load(), size+t.size.Load()
	}
	fmt.Fprintf(os.Stderr, "\r\x1b[K%s", progressLine(now.Sub(p.r.began), took, ticks, ticks-p.ticks, size, size-p.size, missed))
	p.shown, p.ticks, p.size = now, ticks, size
}

// progressLine is one line: what there is, and what came in the time since the
// line before.
func progressLine(all, took time.Duration, ticks, newTicks uint64, size, newSize int64, missed uint64) string {
	return fmt.Sprintf("%v  %d ticks  %.1f/s  %d kB  %.1f kB/s  %d missed", all.Round(time.Second), ticks,
		float64(newTicks)/took.Seconds(), size/1000, float64(newSize)/1000/took.Seconds(), missed)
}

func (p *progress) clear() {
	if !p.quiet {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}

// note says what happened, where the line is.
func (p *progress) note(format string, args ...any) {
	if p.quiet {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(os.Stderr, "\r\x1b[K"+format+"\n", args...)
}

// say says what is wrong, terminal or not.
func (p *progress) say(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(os.Stderr, "rezolus: warning: %v\n", err)
}
