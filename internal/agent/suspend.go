// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// Suspension finds the ticks of a consumer before which the machine slept. The
// numbers of ticks go on across that, and their monotonic clock stands still,
// so that nobody else can tell it from a clock that was set.
type Suspension struct {
	slept      time.Duration // in all, up to the tick before
	wall, mono int64         // of that; 0: there is none
}

// Before is called for each tick, and returns the gap that is to be told before
// it, if there is one. slept is how long the machine has slept in all.
// A tick that was taken before the machine slept may come here after it: only
// one whose time of day went on by more than its monotonic clock came later.
func (p *Suspension) Before(s *metric.Snapshot, slept func() time.Duration) (store.Gap, bool) {
	last := *p
	p.wall, p.mono = s.Wall, s.Mono
	if last.wall == 0 {
		p.slept = slept()
		return store.Gap{}, false
	}
	if ahead := s.Wall - last.wall - (s.Mono - last.mono); ahead < s.Interval {
		return store.Gap{}, false
	}
	p.slept = slept()
	if int64(p.slept-last.slept) < s.Interval {
		return store.Gap{}, false
	}
	g := store.Tick{Wall: s.Wall, Interval: s.Interval, Missed: s.Missed}.GapFrom(last.wall+s.Interval, store.Suspended)
	return g, g.Ticks > 0
}
