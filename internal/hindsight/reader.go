// SPDX-License-Identifier: Apache-2.0

package hindsight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"rezolus/internal/metric"
)

// Window is what is in memory: the latest ticks, and all that a query can be
// answered from without a disk. store.Window is one.
type Window interface {
	Bounds() (first, last int64)
	Series(from, to int64, yield func(*metric.Series) bool) error
	Select(ctx context.Context, from, to int64, want func(*metric.Series) bool) ([]metric.Column, error)
}

// Reader reads a window and, for the time before it, a ring. It implements
// query.Reader.
type Reader struct {
	window Window // nil: the ring alone
	keeper *Keeper
}

// NewReader returns a reader of what a keeper keeps and, where there is one,
// of the window before it.
func NewReader(w Window, k *Keeper) *Reader { return &Reader{window: w, keeper: k} }

// readPatience is how long a disk may take for a query before it is answered
// without the ring.
const readPatience = 20 * time.Second

// after is how long after the window's beginning the ring is asked for series
// that ended there.
const after = 2

// begin is where the window begins: what is before it is the ring's.
func (r *Reader) begin() int64 {
	if r.window != nil {
		if first, last := r.window.Bounds(); last != 0 {
			return first
		}
	}
	return 1<<63 - 1
}

// Bounds implements query.Reader.
func (r *Reader) Bounds() (first, last int64) {
	if r.window != nil {
		first, last = r.window.Bounds()
	}
	if ring := r.keeper.open.Load(); ring != nil {
		f, l := ring.Bounds()
		if f != 0 && (first == 0 || f < first) {
			first = f
		}
		last = max(last, l)
	}
	return first, last
}

// Series implements query.Reader.
func (r *Reader) Series(from, to int64, yield func(*metric.Series) bool) error {
	begin, more := r.begin(), true
	if to >= begin {
		err := r.window.Series(from, to, func(s *metric.Series) bool {
			more = yield(s)
			return more
		})
		if err != nil || !more {
			return err
		}
	}
	if from >= begin {
		return nil
	}
	all, err := bounded(context.Background(), r.keeper, func() (all []*metric.Series, err error) {
		ring, err := r.keeper.reachable()
		if err != nil {
			return nil, nil // as before there was a ring
		}
		err = ring.Series(from, min(to, begin-1), func(s *metric.Series) bool {
			all = append(all, s)
			return true
		})
		return all, err
	})
	for _, s := range all {
		if !yield(s) {
			break
		}
	}
	return err
}

// Select implements query.Reader. Of a time that both have the window's is
// taken.
func (r *Reader) Select(ctx context.Context, from, to int64, want func(*metric.Series) bool) ([]metric.Column, error) {
	begin := r.begin()
	var past, live []metric.Column
	var err error
	if from < begin {
		// A little more than its share: which series ended in between is
		// something only the ring knows.
		until := to
		if begin <= to {
			until = min(to, begin+after*int64(r.keeper.o.Ring.Interval))
		}
		past, err = bounded(ctx, r.keeper, func() ([]metric.Column, error) {
			ring, err := r.keeper.reachable()
			if err != nil {
				return nil, nil
			}
			return ring.Select(ctx, from, until, want)
		})
		if err != nil {
			return nil, err
		}
	}
	if to >= begin {
		if live, err = r.window.Select(ctx, max(from, begin), to, want); err != nil {
			return nil, err
		}
	}
	return join(past, live, begin), nil
}

// bounded does what may hang with a disk, elsewhere.
func bounded[T any](ctx context.Context, k *Keeper, f func() (T, error)) (T, error) {
	type outcome struct {
		got T
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		got, err := f()
		done <- outcome{got, err}
	}()
	var none T
	timer := time.NewTimer(readPatience)
	defer timer.Stop()
	select {
	case o := <-done:
		return o.got, o.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-timer.C:
		return none, fmt.Errorf("the disk of the ring in %s does not answer", k.o.Ring.Dir)
	}
}

// join puts the columns of the ring, up to begin, before those of the window.
func join(past, live []metric.Column, begin int64) []metric.Column {
	if len(past) == 0 {
		return live
	}
	at := make(map[string]int, len(live))
	for i := range live {
		at[identity(&live[i])] = i
	}
	all := slices.Clone(live)
	for i := range past {
		c := &past[i]
		j, both := at[identity(c)]
		if !both {
			if c := before(c, begin, 1<<63-1); len(c.Time) > 0 {
				all = append(all, c)
			}
			continue
		}
		until := int64(1<<63 - 1)
		if len(live[j].Time) > 0 {
			until = live[j].Time[0]
		}
		p := before(c, begin, until)
		all[j] = concat(&p, &live[j])
	}
	return all
}

// identity is what makes a series the same one.
func identity(c *metric.Column) string {
	return c.Desc.Name + "\xff" + strings.Join(c.Labels, "\xff")
}

// before is a column's samples before begin, and its ends before until.
func before(c *metric.Column, begin, until int64) metric.Column {
	n, _ := slices.BinarySearch(c.Time, begin)
	g, _ := slices.BinarySearch(c.Gone, until)
	b := *c
	b.Time, b.Start, b.Gone = c.Time[:n], c.Start[:n], c.Gone[:g]
	if !c.Desc.Kind.Buckets() {
		b.Word = c.Word[:n]
		return b
	}
	b.End, b.Step = c.End[:n], nil
	if n > 0 {
		b.Step = c.Step[:c.End[n-1]]
	}
	return b
}

// concat is one column of two that follow one another.
func concat(a, b *metric.Column) metric.Column {
	if len(a.Time) == 0 && len(a.Gone) == 0 {
		return *b
	}
	c := *b
	c.Time, c.Start = slices.Concat(a.Time, b.Time), slices.Concat(a.Start, b.Start)
	c.Gone = slices.Concat(a.Gone, b.Gone)
	slices.Sort(c.Gone)
	c.Gone = slices.Compact(c.Gone)
	if !c.Desc.Kind.Buckets() {
		c.Word = slices.Concat(a.Word, b.Word)
		return c
	}
	c.Step, c.End = slices.Clone(a.Step), slices.Clone(a.End)
	if len(b.Time) == 0 {
		return c
	}
	// The first of b's samples takes its buckets from none to their counts;
	// here it must take them from where a left them.
	c.Step = append(c.Step, change(a.Step, b.Step[:b.End[0]])...)
	c.End = append(c.End, len(c.Step))
	shift := len(c.Step) - b.End[0]
	c.Step = append(c.Step, b.Step[b.End[0]:]...)
	for _, e := range b.End[1:] {
		c.End = append(c.End, e+shift)
	}
	return c
}

// change are the steps from the buckets that all steps of one lead to, to
// those that the other lead to.
func change(from, to []metric.Step) []metric.Step {
	sums := map[int32]int64{}
	for _, s := range to {
		sums[s.Bucket] += s.Add
	}
	for _, s := range from {
		sums[s.Bucket] -= s.Add
	}
	var steps []metric.Step
	for bucket, add := range sums {
		if add != 0 {
			steps = append(steps, metric.Step{Bucket: bucket, Add: add})
		}
	}
	slices.SortFunc(steps, func(a, b metric.Step) int { return int(a.Bucket - b.Bucket) })
	return steps
}
