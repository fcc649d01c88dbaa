// SPDX-License-Identifier: Apache-2.0

package query

import (
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"rezolus/internal/metric"
)

// millis is a time as the engine has it, in Unix milliseconds. The name also
// tells vet that an iterator's Seek is not io.Seeker's.
type millis = int64

// staleNaN marks the end of a series for the engine.
var staleNaN = math.Float64frombits(value.StaleNaN)

// cursor walks over what happened to a column: samples, and ends of the
// series. Of several in one millisecond it stops at the last.
type cursor struct {
	column *metric.Column
	at     int   // the sample under the cursor, or the last before an end; -1 before the first
	prev   int   // the sample that the engine saw, or skipped, before that one; -1 for none
	gone   int   // the next end
	t      int64 // Unix milliseconds
	ended  bool  // the cursor is at an end, not at a sample
	lives  lives
}

// peek is the millisecond of what comes next, and whether that is an end.
func (c *cursor) peek() (t int64, ended, ok bool) {
	col, next := c.column, c.at+1
	switch {
	case c.gone < len(col.Gone) && (next >= len(col.Time) || col.Gone[c.gone] <= col.Time[next]):
		return toMs(col.Gone[c.gone]), true, true
	case next < len(col.Time):
		return toMs(col.Time[next]), false, true
	}
	return 0, false, false
}

// step moves to what comes next; false when there is nothing more.
func (c *cursor) step() bool {
	t, ended, ok := c.peek()
	if !ok {
		return false
	}
	c.prev, c.t = c.at, t
	for ok && t == c.t {
		if c.ended = ended; ended {
			c.gone++
		} else {
			c.at++
		}
		t, ended, ok = c.peek()
	}
	return true
}

// seek moves to the first thing at t or later. It never moves back.
func (c *cursor) seek(t int64) bool {
	if (c.at >= 0 || c.ended) && c.t >= t {
		return true
	}
	if ns := t * nsPerMs; t > math.MinInt64/nsPerMs && t < math.MaxInt64/nsPerMs {
		col := c.column
		n, _ := slices.BinarySearch(col.Time[c.at+1:], ns)
		g, _ := slices.BinarySearch(col.Gone[c.gone:], ns)
		c.at, c.gone = c.at+n, c.gone+g
	}
	for c.step() {
		if c.t >= t {
			return true
		}
	}
	return false
}

// start is when the life of the sample under the cursor began, in Unix
// milliseconds; 0, which is Prometheus's unknown, at an end and where the
// column does not know either.
func (c *cursor) start() int64 {
	if c.ended || c.column.Start[c.at] == 0 {
		return 0
	}
	if c.column.Desc.Kind == metric.Gauge {
		return toMs(c.column.Start[c.at])
	}
	return c.lives.start(c.column, c.at)
}

// lives rounds the starts of a column to milliseconds so that the engine
// finds the resets where they are and nowhere else: it believes in a reset
// when a start lies after the sample before and before the sample itself,
// and rounding, or a clock that differs from the tick's by the time a read
// takes, can move a start across either. All samples of a life must be told
// the same start.
type lives struct {
	known bool
	ns    int64 // the start as the column has it
	ms    int64 // and as the engine gets it
}

func (l *lives) start(c *metric.Column, at int) int64 {
	ns := c.Start[at]
	if l.known && l.ns == ns {
		return l.ms
	}
	first := at
	for first > 0 && c.Start[first-1] == ns {
		first--
	}
	ms := toMs(ns)
	if first > 0 {
		ms = max(ms, toMs(c.Time[first-1])+1)
	}
	*l = lives{true, ns, min(ms, toMs(c.Time[first])-1)}
	if ns > c.Time[first]+setBack {
		l.ms = 0
	}
	return l.ms
}

// setBack is how much later than its first sample a life may have begun. Where
// it is more, the clock was set back since: when it began is not known then, by
// the clock that its samples have.
const setBack = int64(10 * time.Second)

// floats iterates over the samples of a counter or gauge.
type floats struct{ cursor }

func (f *floats) Next() chunkenc.ValueType         { return kind(f.step(), chunkenc.ValFloat) }
func (f *floats) Seek(t millis) chunkenc.ValueType { return kind(f.seek(t), chunkenc.ValFloat) }
func (f *floats) AtT() int64                       { return f.t }
func (f *floats) AtST() int64                      { return f.start() }
func (f *floats) Err() error                       { return nil }

func (f *floats) At() (int64, float64) {
	if f.ended {
		return f.t, staleNaN
	}
	return f.t, f.column.Desc.Value(f.column.Word[f.at])
}

func (f *floats) AtHistogram(*histogram.Histogram) (int64, *histogram.Histogram) {
	panic("query: a column of words has no histograms")
}

func (f *floats) AtFloatHistogram(*histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	panic("query: a column of words has no histograms")
}

func kind(ok bool, v chunkenc.ValueType) chunkenc.ValueType {
	if !ok {
		return chunkenc.ValNone
	}
	return v
}
