// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	"rezolus/internal/metric"
)

// request asks the loop for a snapshot outside of any grid.
type request struct {
	maxAge int64
	reply  chan *metric.Snapshot
}

// Latest is a copy of a snapshot that is at most maxAge old, taken now if need
// be: for scrapes, which come when they like.
func (a *Agent) Latest(ctx context.Context, maxAge time.Duration) (*metric.Snapshot, error) {
	r := request{int64(maxAge), make(chan *metric.Snapshot, 1)}
	select {
	case a.requests <- r:
	case <-ctx.Done():
		return nil, errors.Join(errors.New("the agent does not answer"), ctx.Err())
	}
	select {
	case s := <-r.reply:
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve answers a request, in the loop's goroutine, where nothing else reads
// the sources.
func (a *Agent) serve(r request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Mono()
	if a.whole.Run == nil || now-a.whole.Mono > r.maxAge {
		frames := a.whole.Grow(len(a.sources))
		n := 0
		for _, s := range a.sources {
			if s.read(&frames[n]) {
				n++
			}
		}
		a.whole.Frames = frames[:n]
		a.whole.Run, a.whole.Mono, a.whole.Wall = a.run, now, now+a.offset
	}
	copied := new(metric.Snapshot)
	copied.CopyFrom(&a.whole)
	r.reply <- copied
}

// serveNow answers the requests that wait.
func (a *Agent) serveNow() {
	for {
		select {
		case r := <-a.requests:
			a.serve(r)
		default:
			return
		}
	}
}
