// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// rewriting copies ticks one by one, where they are to become others.
type rewriting struct {
	extract
	holes string // a reason: ticks that damage took get a gap that says it

	w      *store.Writer
	gaps   []store.Gap
	events []store.Event
	ticks  uint64
	before metric.Snapshot // the last tick, without frames
	told   bool            // a gap was written since then
}

// run writes the recording.
func (r *rewriting) run(ctx context.Context, out string) (store.Copied, error) {
	info := r.in.Info()
	r.gaps, r.events = info.Gaps, info.Events
	slices.SortStableFunc(r.gaps, func(a, b store.Gap) int { return cmp.Compare(a.From, b.From) })
	slices.SortStableFunc(r.events, func(a, b store.Event) int { return cmp.Compare(a.Time, b.Time) })
	w, err := store.Create(osFS, out, store.WriterOptions{Sync: -1, EncoderOptions: store.EncoderOptions{
		Interval: info.Interval, Meta: runsMetadata(info)}})
	if err != nil {
		return store.Copied{}, err
	}
	r.w = w
	err = r.in.each(ctx, r.from, r.to, r.want, r.tick)
	if err == nil {
		err = r.marks(math.MaxInt64)
	}
	if err == nil {
		err = r.torn()
	}
	if err != nil {
		return store.Copied{}, errors.Join(err, w.Abandon())
	}
	err = w.Close()
	return store.Copied{Ticks: r.ticks, Bytes: w.Size()}, err
}

func (r *rewriting) tick(s *metric.Snapshot) error {
	if err := r.marks(s.Wall); err != nil {
		return err
	}
	if err := r.hole(s); err != nil {
		return err
	}
	r.ticks++
	r.before, r.told = *s, false
	r.before.Frames = nil
	return r.w.Put(s)
}

// marks writes the gaps and events up to a moment.
func (r *rewriting) marks(until int64) error {
	for len(r.gaps) > 0 && r.gaps[0].From <= until {
		if g := r.gaps[0]; max(g.From, r.from) <= min(g.To, r.to) {
			if err := r.w.WriteGap(g); err != nil {
				return err
			}
			r.told = true
		}
		r.gaps = r.gaps[1:]
	}
	for len(r.events) > 0 && r.events[0].Time <= until {
		if e := r.events[0]; e.Time >= r.from && e.Time <= r.to {
			if err := r.w.WriteEvent(e); err != nil {
				return err
			}
		}
		r.events = r.events[1:]
	}
	return nil
}

// hole marks ticks that the numbers say were there.
func (r *rewriting) hole(s *metric.Snapshot) error {
	b := &r.before
	if r.holes == "" || r.told || b.Run == nil || b.Run.ID != s.Run.ID || s.Seq <= b.Seq+1 {
		return nil
	}
	if len(r.in.Info().Damage) == 0 {
		return nil // the agent's own loss, of which the numbers tell
	}
	g := store.Gap{From: b.Wall + s.Interval, To: s.Wall - s.Interval, Ticks: s.Seq - b.Seq - 1, Reason: r.holes}
	g.To = max(g.From, g.To)
	return r.w.WriteGap(g)
}

// torn marks that more followed the last tick, but not how much.
func (r *rewriting) torn() error {
	info := r.in.Info()
	if r.holes == "" || info.Closed || len(info.Damage) == 0 || r.ticks == 0 {
		return nil
	}
	last := info.Damage[len(info.Damage)-1]
	if last.Offset+last.Bytes < info.Bytes {
		return nil
	}
	at := r.before.Wall + r.before.Interval
	return r.w.WriteGap(store.Gap{From: at, To: at, Reason: r.holes + ": it ends here"})
}
