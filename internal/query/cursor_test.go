// SPDX-License-Identifier: Apache-2.0

package query

import (
	"math"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"pgregory.net/rapid"

	"rezolus/internal/metric"
)

func TestToMsRoundsDown(t *testing.T) {
	f := func(ns, want int64) {
		t.Helper()
		if got := toMs(ns); got != want {
			t.Errorf("%d ns are %d ms, want %d", ns, got, want)
		}
	}
	f(0, 0)
	f(999_999, 0)
	f(1_000_000, 1)
	f(-1, -1)
	f(-1_000_000, -1)
	f(-1_000_001, -2)
}

// Samples from before the time at which their counter began are those of a
// clock that was set back: the engine must not count from zero there.
func TestAClockThatWasSetBackHasNoStarts(t *testing.T) {
	const hour, second = 3600 * 1_000_000_000, 1_000_000_000
	of := func(first int64) int64 {
		c := &metric.Column{Time: []int64{first, first + second}, Start: []int64{origin, origin}}
		return new(lives).start(c, 1)
	}
	for first, want := range map[int64]int64{origin + second: toMs(origin), origin - second: toMs(origin-second) - 1, origin - hour: 0} {
		if got := of(first); got != want {
			t.Errorf("first sample at %d: the life began at %d, want %d", first-origin, got, want)
		}
	}
}

// event is what a column says of one millisecond.
type event struct {
	t     int64
	ended bool
	word  uint64
	start int64 // nanoseconds
}

// anyColumn draws a counter with ticks finer than a millisecond now and
// then, lives and ends. Its words tell the samples apart.
func anyColumn(t *rapid.T) *metric.Column {
	c := &metric.Column{Desc: &metric.Desc{Name: "c", Kind: metric.Counter}}
	now := int64(origin)
	start := now - rapid.Int64Range(1, 2*nsPerMs).Draw(t, "first start")
	for range rapid.IntRange(0, 20).Draw(t, "ticks") {
		before := now
		now += rapid.SampledFrom([]int64{1, nsPerMs / 3, nsPerMs, 5*nsPerMs + 7, 40 * nsPerMs}).Draw(t, "interval")
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0:
			c.Gone = append(c.Gone, now)
			start = 0
			continue
		case 1:
			start = 0
		}
		if start == 0 { // up to a tenth of a millisecond after the tick it shows in
			start = before + rapid.Int64Range(1, now-before+nsPerMs/10).Draw(t, "start")
		}
		c.Time, c.Start = append(c.Time, now), append(c.Start, start)
		c.Word = append(c.Word, uint64(len(c.Word)+1))
	}
	return c
}

// eventsOf is the plain reading of a column.
func eventsOf(c *metric.Column) []event {
	type moment struct {
		ns int64
		event
	}
	var all []moment
	for i, ns := range c.Time {
		all = append(all, moment{ns, event{toMs(ns), false, c.Word[i], c.Start[i]}})
	}
	for _, ns := range c.Gone {
		all = append(all, moment{ns, event{t: toMs(ns), ended: true}})
	}
	slices.SortFunc(all, func(a, b moment) int { return int(a.ns - b.ns) })
	var out []event
	for _, m := range all {
		if n := len(out); n > 0 && out[n-1].t == m.t {
			out = out[:n-1]
		}
		out = append(out, m.event)
	}
	return out
}

func TestIteratorsWalkAndSeekAsPlainReadingHasIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyColumn(t)
		events := eventsOf(c)
		it := (&series{column: c}).Iterator(nil)
		for pos := -1; pos < len(events); {
			var got chunkenc.ValueType
			if rapid.Bool().Draw(t, "seek") {
				to := toMs(origin) + rapid.Int64Range(-5, 300).Draw(t, "to")
				for pos < 0 || pos < len(events) && events[pos].t < to {
					pos++
				}
				got = it.Seek(to)
			} else {
				pos++
				got = it.Next()
			}
			if pos >= len(events) {
				if got != chunkenc.ValNone {
					t.Fatalf("value %v after the last of %d", got, len(events))
				}
				return
			}
			want := events[pos]
			at, v := it.At()
			if got != chunkenc.ValFloat || at != want.t || it.AtT() != want.t || value.IsStaleNaN(v) != want.ended || !want.ended && v != float64(want.word) {
				t.Fatalf("event %d is %v at %d, want %+v", pos, v, at, want)
			}
		}
	})
}

// The engine sees resets in start timestamps by this rule.
func engineSeesReset(prevStart, prev, start, now int64) bool {
	switch {
	case prevStart == start || start == 0 || start >= now || start < prev:
		return false
	case start > prev:
		return true
	}
	return prevStart <= prev && prevStart != 0 && prevStart != prev
}

func TestStartsTellTheEngineEveryResetAndNoOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyColumn(t)
		var prev event
		var prevStart int64
		it := (&series{column: c}).Iterator(nil)
		for _, e := range eventsOf(c) {
			it.Next()
			if e.ended {
				continue
			}
			start := it.AtST()
			if prev.t != 0 {
				if got, want := engineSeesReset(prevStart, prev.t, start, e.t), prev.start != e.start; got != want {
					t.Fatalf("reset %v at %+v (start %d) after %+v (start %d), want %v", got, e, start, prev, prevStart, want)
				}
				if start < prev.t && start != prevStart {
					t.Fatalf("start %d lies before the sample before, %+v", start, prev)
				}
			}
			prev, prevStart = e, start
		}
	})
}

func TestAHistogramIsTheSumOfItsSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &metric.Column{Desc: desc("h", metric.Histogram)}
		plain := make([]uint64, c.Desc.Words())
		var want [][]uint64
		for i := range rapid.IntRange(1, 12).Draw(t, "samples") {
			for range rapid.IntRange(0, 5).Draw(t, "steps") {
				b := rapid.IntRange(0, len(plain)-1).Draw(t, "bucket")
				add := rapid.Int64Range(-int64(plain[b]), 1000).Draw(t, "add")
				plain[b] += uint64(add)
				c.Step = append(c.Step, metric.Step{Bucket: int32(b), Add: add})
			}
			c.Time, c.Start = append(c.Time, at(float64(i))), append(c.Start, at(-1))
			c.End = append(c.End, len(c.Step))
			want = append(want, slices.Clone(plain))
		}
		it := (&series{column: c}).Iterator(nil)
		for i := 0; i < len(want); i += 1 + rapid.IntRange(0, 2).Draw(t, "skip") {
			it.Seek(toMs(at(float64(i))))
			_, h := it.AtFloatHistogram(nil)
			if err := h.Validate(); err != nil {
				t.Fatal(err)
			}
			got := make([]uint64, len(plain))
			for b := h.PositiveBucketIterator(); b.Next(); {
				got[b.At().Index] = uint64(b.At().Count)
				lo, hi := c.Desc.Power.Bounds(int(b.At().Index))
				if b.At().Upper != float64(hi) || lo > 0 && b.At().Lower != float64(lo-1) {
					t.Fatalf("bucket %v, want above %d up to %d", b.At(), lo-1, hi)
				}
			}
			if !slices.Equal(got, want[i]) {
				t.Fatalf("sample %d has %v, want %v", i, got, want[i])
			}
		}
	})
}

func TestBoundsAreStrictlyAscendingAsFloats(t *testing.T) {
	for p, get := range layouts {
		if get == nil {
			continue
		}
		l := get()
		for i := 1; i < len(l.bounds); i++ {
			if l.bounds[i] <= l.bounds[i-1] {
				t.Errorf("power %d: bound %d is %v after %v", p, i, l.bounds[i], l.bounds[i-1])
			}
		}
		if last := l.bounds[len(l.bounds)-1]; last != math.Exp2(64) {
			t.Errorf("power %d: last bound %v", p, last)
		}
	}
}
