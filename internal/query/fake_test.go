// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"slices"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// fakeReader is a Reader over columns made by hand.
type fakeReader struct {
	columns []metric.Column
	err     error
	block   <-chan struct{} // Select waits for it, if there is one
}

func (f *fakeReader) Bounds() (first, last int64) {
	var all []int64
	for _, c := range f.columns {
		all = append(all, c.Time...) // an end may lie after the last tick
	}
	if len(all) == 0 {
		return 0, 0
	}
	first, last = slices.Min(all), slices.Max(all)
	if first == 0 && last == 0 {
		last = 1 // a tick at 1970 is not an empty store
	}
	return first, last
}

func (f *fakeReader) Series(from, to int64, yield func(*metric.Series) bool) error {
	for i := range f.columns {
		c := cut(&f.columns[i], from, to)
		if len(c.Time) > 0 && !yield(seriesOf(&f.columns[i])) {
			break
		}
	}
	return f.err
}

func (f *fakeReader) Select(ctx context.Context, from, to int64, want func(*metric.Series) bool) ([]metric.Column, error) {
	if f.block != nil {
		select {
		case <-f.block:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	var out []metric.Column
	for i := range f.columns {
		if !want(seriesOf(&f.columns[i])) {
			continue
		}
		if c := cut(&f.columns[i], from, to); len(c.Time)+len(c.Gone) > 0 {
			out = append(out, c)
		}
	}
	return out, f.err
}

func seriesOf(c *metric.Column) *metric.Series {
	return &metric.Series{Desc: c.Desc, Values: c.Labels}
}

// cut is the column within [from, to].
func cut(c *metric.Column, from, to int64) metric.Column {
	bounds := func(s []int64) (int, int) {
		a, _ := slices.BinarySearch(s, from)
		b, found := slices.BinarySearch(s, to)
		if found {
			b++
		}
		return a, max(a, b)
	}
	out := *c
	a, b := bounds(c.Gone)
	out.Gone = c.Gone[a:b]
	a, b = bounds(c.Time)
	out.Time, out.Start = c.Time[a:b], c.Start[a:b]
	if c.Word != nil {
		out.Word = c.Word[a:b]
	}
	if c.End == nil || a == b {
		return out
	}
	// The first sample of the cut starts from empty buckets.
	counts := map[int32]int64{}
	for _, s := range c.Step[:c.End[a]] {
		counts[s.Bucket] += s.Add
	}
	out.Step = nil
	for bucket, n := range counts {
		out.Step = append(out.Step, metric.Step{Bucket: bucket, Add: n})
	}
	out.End = []int{len(out.Step)}
	for i := a + 1; i < b; i++ {
		out.Step = append(out.Step, c.Step[c.End[i-1]:c.End[i]]...)
		out.End = append(out.End, len(out.Step))
	}
	return out
}

// at is a tick some milliseconds after the beginning of all tests.
func at(ms float64) int64 { return origin + int64(ms*nsPerMs) }

// origin is a round time: 2023-11-14T22:13:20Z.
const origin = 1_700_000_000 * 1000 * nsPerMs

// desc describes a metric with the label keys.
func desc(name string, kind metric.Kind, keys ...string) *metric.Desc {
	d := &metric.Desc{Name: name, Kind: kind, Keys: keys, Help: "help of " + name}
	if kind == metric.Histogram {
		d.Power = hist.Default
	}
	return d
}

// words is a column of samples {milliseconds, word} that started at start.
func words(d *metric.Desc, labels []string, start float64, samples ...[2]float64) metric.Column {
	c := metric.Column{Desc: d, Labels: labels}
	for _, s := range samples {
		c.Time = append(c.Time, at(s[0]))
		c.Start = append(c.Start, at(start))
		c.Word = append(c.Word, uint64(int64(s[1])))
	}
	return c
}

// join appends later lives of a series to a column.
func join(c metric.Column, more ...metric.Column) metric.Column {
	for _, m := range more {
		base := len(c.Step)
		for _, end := range m.End {
			c.End = append(c.End, base+end)
		}
		c.Step = append(c.Step, m.Step...)
		c.Time = append(c.Time, m.Time...)
		c.Start = append(c.Start, m.Start...)
		c.Word = append(c.Word, m.Word...)
		c.Gone = append(c.Gone, m.Gone...)
	}
	return c
}

// dense is a column of histograms from their buckets at times in
// milliseconds; resets are sample numbers at which a new life starts, half a
// millisecond before the sample.
func dense(d *metric.Desc, labels []string, start float64, times []float64, buckets [][]uint64, resets ...int) metric.Column {
	c := metric.Column{Desc: d, Labels: labels}
	before := make([]uint64, d.Words())
	for i, ms := range times {
		if slices.Contains(resets, i) {
			start = ms - 0.5
		}
		for b, n := range buckets[i] {
			if n != before[b] {
				c.Step = append(c.Step, metric.Step{Bucket: int32(b), Add: int64(n - before[b])})
			}
		}
		before = buckets[i]
		c.Time = append(c.Time, at(ms))
		c.Start = append(c.Start, at(start))
		c.End = append(c.End, len(c.Step))
	}
	return c
}
