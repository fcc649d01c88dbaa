// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"rezolus/internal/metric"
)

// Joined reads several recordings as one: those of a ring, or of a machine
// day by day. It sees them as they were when they were joined, and needs
// them open. It is safe for concurrent use.
type Joined struct {
	stretches []located
}

// Join joins recordings in the order of time. Where one ends and the next
// goes on with the same run of the agent, its series go on too, unless it was
// closed for good (Writer.Close) or a gap says otherwise.
func Join(recordings ...*Recording) *Joined {
	j := &Joined{}
	for _, r := range recordings {
		all := r.all()
		if len(all) == 0 {
			continue
		}
		if n := len(j.stretches); n > 0 {
			last := &j.stretches[n-1]
			if r.beginsWithGap() || last.chain.run.ID != all[0].chain.run.ID {
				last.ends()
			}
		}
		for i := range all {
			j.stretches = appendStretch(j.stretches, all[i])
		}
	}
	return j
}

// Bounds implements query.Reader.
func (j *Joined) Bounds() (first, last int64) { return bounds(j.stretches) }

// within returns the stretches from the first that has ticks in [from, to].
func (j *Joined) within(from, to int64) []located {
	first, last := len(j.stretches), 0
	for i := range j.stretches {
		if j.stretches[i].shows(from, to) {
			first, last = min(first, i), i+1
		}
	}
	if first >= last {
		return nil
	}
	return slices.Clone(j.stretches[first:last])
}

// Series implements query.Reader.
func (j *Joined) Series(from, to int64, yield func(*metric.Series) bool) error {
	seen := map[metric.Hash]bool{}
	for _, l := range j.within(from, to) {
		if !l.shows(from, to) {
			continue
		}
		for _, s := range l.r.schemas(&l) {
			if seen[s.Hash] {
				continue
			}
			seen[s.Hash] = true
			for i := range s.Series {
				if !yield(&s.Series[i]) {
					return nil
				}
			}
		}
	}
	return nil
}

// Select implements query.Reader.
func (j *Joined) Select(ctx context.Context, from, to int64, want func(*metric.Series) bool) ([]metric.Column, error) {
	stretches, ticks := j.within(from, to), 0
	for i := range stretches {
		ticks += int(stretches[i].ticks)
	}
	s := newSelection(ticks, from, to, want)
	parts, stop := decodeParts(s, stretches)
	defer stop()
	for i := range stretches {
		l := &stretches[i]
		err := ctx.Err()
		if err == nil && parts[i] != nil {
			var p part
			select {
			case p = <-parts[i]:
				err = l.part(s, &p)
			case <-ctx.Done():
				err = ctx.Err()
			}
		} else if err == nil && l.shows(from, to) {
			err = l.r.walk(s, l)
		}
		if err != nil {
			return nil, fmt.Errorf("select from %s: %w", l.r.path, err)
		}
		if l.over != 0 {
			s.over(l.over)
		}
	}
	return s.result(), nil
}

// part gives a decoded segment to a selection.
func (l *located) part(s *selection, p *part) error {
	if p.err != nil {
		if !damaged(p.err) {
			return p.err
		}
		l.r.hurt(l.off, l.end-l.off, p.err)
	}
	s.part(p)
	return nil
}

// decodeParts begins to decode the segments of the stretches, in order and
// on all processors. A part comes for each of them, until stop is called.
func decodeParts(s *selection, stretches []located) (parts []chan part, stop func()) {
	parts = make([]chan part, len(stretches))
	var work []int
	for i := range stretches {
		if stretches[i].segment != nil && stretches[i].shows(s.from, s.to) {
			parts[i] = make(chan part, 1)
			work = append(work, i)
		}
	}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(work)) {
		workers.Go(func() {
			for n := next.Add(1); n <= int64(len(work)); n = next.Add(1) {
				l := &stretches[work[n-1]]
				parts[work[n-1]] <- l.r.segment(l).decode(s.from, min(s.to, l.hide-1), s.wanted)
			}
		})
	}
	return parts, func() {
		next.Store(int64(len(work)))
		workers.Wait()
	}
}
