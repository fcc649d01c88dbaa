// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"rezolus/internal/agent"
	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// past is what a follower that comes back gets of the time it was away: from
// the window, and what that has no more from the ring.
type past struct {
	window *store.Window
	older  []agent.Backfill // the finest last
}

var errWindow = errors.New("the window has the rest")

// Each implements agent.Backfill.
func (p past) Each(after int64, f func(*metric.Snapshot) error) error {
	if first, _ := p.window.Bounds(); first > after && len(p.older) > 0 {
		var failed error
		err := p.older[len(p.older)-1].Each(after, func(s *metric.Snapshot) error {
			if s.Wall >= first {
				return errWindow
			}
			after = s.Wall
			failed = f(s)
			return failed
		})
		// A disk that fails leaves what is in memory.
		if err != nil && failed != nil {
			return failed
		}
	}
	return p.window.Each(after, f)
}
