// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"
	"time"

	"rezolus/internal/agent"
	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// past is what a follower that comes back gets of the time it was away: from
// the window and from the rings, in the order in which they suit it. Where one
// does not reach, the next does.
type past []memory

// memory keeps ticks at an interval.
type memory struct {
	agent.Backfill
	interval time.Duration
}

// onItsWay is how long a tick may be on its way into a memory.
const onItsWay = 3 * time.Second

var errThere = errors.New("the other memory has the rest")

// suited is the past for an interval: the coarsest first that has all of its
// ticks, for it is read the fastest, and at last those that are too coarse.
func (p past) suited(interval time.Duration) agent.Backfill {
	p = slices.Clone(p)
	slices.SortStableFunc(p, func(a, b memory) int {
		fits, also := interval%a.interval == 0, interval%b.interval == 0
		switch {
		case fits && !also:
			return -1
		case also && !fits:
			return 1
		case fits:
			return int(b.interval - a.interval)
		}
		return int(a.interval - b.interval)
	})
	return p
}

// Each implements agent.Backfill.
func (p past) Each(after int64, f func(*metric.Snapshot) error) error {
	return p.between(after, 1<<63-1, f)
}

// between gives the ticks between two times, neither included.
func (p past) between(after, until int64, f func(*metric.Snapshot) error) error {
	if len(p) == 0 {
		return nil
	}
	var failed error
	give := func(s *metric.Snapshot) error {
		if s.Wall >= until {
			return errThere
		}
		after = s.Wall
		failed = f(s)
		return failed
	}
	first, err := p[0].first(after)
	if err != nil { // a disk that fails leaves the others
		return p[1:].between(after, until, f)
	}
	if first != 0 {
		if first > after+int64(p[0].interval) {
			if err := p[1:].between(after, min(first, until), give); err != nil {
				return err
			}
		}
		if err := p[0].Each(after, give); failed != nil || errors.Is(err, errThere) {
			return failed
		}
	}
	// It may not be kept there any more; or not yet.
	return p[1:].between(after, min(until, host.Wall()-int64(onItsWay)), f)
}

// first is the time of the first tick that is later than after; 0: there is
// none.
func (m memory) first(after int64) (first int64, err error) {
	err = m.Each(after, func(s *metric.Snapshot) error {
		first = s.Wall
		return errThere
	})
	if errors.Is(err, errThere) {
		err = nil
	}
	return first, err
}
