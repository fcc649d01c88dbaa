// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"math"
	"time"

	"rezolus/internal/metric"
)

// request asks the loop for a snapshot outside of any grid.
type request struct {
	maxAge int64
	reply  chan *metric.Snapshot // has room for the reply
}

// Latest is a copy of what was read last, read now if that is older than
// maxAge: for scrapes, which come when they like. It has no number, and no
// interval.
func (a *Agent) Latest(ctx context.Context, maxAge time.Duration) (*metric.Snapshot, error) {
	r := request{int64(maxAge), make(chan *metric.Snapshot, 1)}
	if err := a.ask(r); err != nil {
		return nil, err
	}
	select {
	case s, open := <-r.reply:
		if !open {
			return nil, errStopped
		}
		return s, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the tick loop: %w", ctx.Err())
	}
}

func (a *Agent) ask(r request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return errStopped
	}
	a.asked = append(a.asked, r)
	a.clock.Wake()
	return nil
}

// answer serves the requests that wait, in the loop's goroutine, where
// nothing else reads the sources.
func (a *Agent) answer() {
	a.mu.Lock()
	asked := a.asked
	a.asked = nil
	a.mu.Unlock()
	for _, r := range asked {
		now := a.clock.Mono()
		if a.taken == 0 || now-a.taken > r.maxAge {
			if a.followWall() {
				a.align(now)
			}
			a.take(now, math.MaxInt64)
		}
		r.reply <- a.last(now)
	}
}

// scrape is how far apart scrapes may be. Sources that are not read at each
// of them have their frame of the one before.
const scrape = int64(time.Minute)

func (a *Agent) last(now int64) *metric.Snapshot {
	s := &metric.Snapshot{Run: a.run, Mono: a.taken, Wall: a.taken + a.offset}
	for _, r := range a.sources {
		if r.current(now, scrape) {
			s.Frames = append(s.Frames, metric.Frame{})
			s.Frames[len(s.Frames)-1].CopyFrom(&r.frame)
		}
	}
	return s
}
