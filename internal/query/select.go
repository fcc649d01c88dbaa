// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"math"
	"slices"
	"sort"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"

	"rezolus/internal/metric"
)

// nsPerMs is the engine's millisecond in our nanoseconds.
const nsPerMs = 1_000_000

// toMs is the millisecond that ns lies in. It rounds down, before 1970 too.
func toMs(ns int64) int64 {
	ms := ns / nsPerMs
	if ms*nsPerMs > ns {
		ms--
	}
	return ms
}

// span is the nanoseconds of the milliseconds mint to maxt, of which the
// reader has something from from on; ok is false when that is nothing. The
// first and the last possible time, which stand for no bound, would overflow.
// The last tick is no bound: the end of a series lies after it.
func span(r Reader, mint, maxt int64) (from, to int64, ok bool) {
	first, last := r.Bounds()
	if first == 0 && last == 0 {
		return 0, 0, false
	}
	from, to = first, math.MaxInt64
	if mint > math.MinInt64/nsPerMs {
		from = max(first, mint*nsPerMs)
	}
	if maxt < math.MaxInt64/nsPerMs {
		to = maxt*nsPerMs + nsPerMs - 1
	}
	return from, to, from <= to
}

// matches reports whether the series has the labels that are asked for.
// A label that it has not is empty.
func matches(s *metric.Series, ms []*labels.Matcher) bool {
	for _, m := range ms {
		v := s.Desc.Name
		if m.Name != nameLabel {
			v, _ = s.Label(m.Name)
		}
		if !m.Matches(v) {
			return false
		}
	}
	return true
}

// queryable is a Reader as the engine wants it, for one query. Into gauges,
// if there is a map, go the names of gauges that the query takes for counters.
type queryable struct {
	r      Reader
	gauges map[string]bool
}

func (q queryable) Querier(mint, maxt int64) (storage.Querier, error) {
	return querier{q, mint, maxt}, nil
}

// querier is a queryable between two times in milliseconds, both included.
type querier struct {
	queryable
	mint, maxt int64
}

func (q querier) Close() error { return nil }

// Select reads the columns at once; the engine asks for them in any case. The
// series are sorted even if that is not asked for, so that the same question
// is answered in the same order.
func (q querier) Select(ctx context.Context, _ bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	mint, maxt := q.mint, q.maxt
	if hints != nil {
		mint, maxt = hints.Start, hints.End
	}
	from, to, ok := span(q.r, mint, maxt)
	if !ok {
		return storage.EmptySeriesSet()
	}
	columns, err := q.r.Select(ctx, from, to, func(s *metric.Series) bool { return matches(s, ms) })
	if err != nil {
		return storage.ErrSeriesSet(promql.ErrStorage{Err: err})
	}
	set := &seriesSet{series: make([]series, len(columns))}
	rated := q.gauges != nil && hints != nil && (hints.Func == "rate" || hints.Func == "increase")
	b := labels.NewScratchBuilder(8)
	for i := range columns {
		c := &columns[i]
		set.series[i] = series{column: c, labels: makeLabels(&b, c.Desc, c.Labels)}
		if rated && c.Desc.Kind == metric.Gauge {
			q.gauges[c.Desc.Name] = true
		}
	}
	slices.SortFunc(set.series, func(a, b series) int { return labels.Compare(a.labels, b.labels) })
	return set
}

func makeLabels(b *labels.ScratchBuilder, d *metric.Desc, values []string) labels.Labels {
	b.Reset()
	if d.Name != "" {
		b.Add(nameLabel, d.Name)
	}
	for i, v := range values {
		if v != "" { // an empty label is none
			b.Add(d.Keys[i], v)
		}
	}
	if len(d.Keys) > 0 && d.Keys[0] < nameLabel { // upper case sorts before _
		b.Sort()
	}
	return b.Labels()
}

func (q querier) LabelValues(_ context.Context, name string, _ *storage.LabelHints, ms ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	values, err := q.collect(ms, func(s *metric.Series, add func(string)) {
		if name == nameLabel {
			add(s.Desc.Name)
		} else if v, ok := s.Label(name); ok && v != "" {
			add(v)
		}
	})
	return values, nil, err
}

func (q querier) LabelNames(_ context.Context, _ *storage.LabelHints, ms ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	names, err := q.collect(ms, func(s *metric.Series, add func(string)) {
		if s.Desc.Name != "" {
			add(nameLabel)
		}
		for i, k := range s.Desc.Keys {
			if s.Values[i] != "" {
				add(k)
			}
		}
	})
	return names, nil, err
}

// collect is the sorted set of what take adds for the matching series.
func (q querier) collect(ms []*labels.Matcher, take func(s *metric.Series, add func(string))) ([]string, error) {
	from, to, ok := span(q.r, q.mint, q.maxt)
	if !ok {
		return nil, nil
	}
	set := map[string]struct{}{}
	err := q.r.Series(from, to, func(s *metric.Series) bool {
		if matches(s, ms) {
			take(s, func(v string) {
				if v != "" {
					set[v] = struct{}{}
				}
			})
		}
		return true
	})
	if err != nil {
		return nil, promql.ErrStorage{Err: err}
	}
	out := make([]string, 0, len(set))
	for v := range set {
		out = append(out, v)
	}
	sort.Strings(out)
	return out, nil
}

// seriesSet walks over sorted series that are all there. Where a recording
// has two columns under the same labels, because a metric became one of
// another kind, they are one series.
type seriesSet struct {
	series     []series
	first, end int // the present series is made of these
}

func (s *seriesSet) Next() bool {
	s.first = s.end
	for s.end < len(s.series) && (s.end == s.first || labels.Equal(s.series[s.end].labels, s.series[s.first].labels)) {
		s.end++
	}
	return s.first < s.end
}

func (s *seriesSet) At() storage.Series {
	if s.end == s.first+1 {
		return &s.series[s.first]
	}
	var parts []storage.Series
	for i := s.first; i < s.end; i++ {
		parts = append(parts, &s.series[i])
	}
	return storage.ChainedSeriesMerge(parts...)
}

func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// series is a column under its labels.
type series struct {
	column *metric.Column
	labels labels.Labels
}

func (s *series) Labels() labels.Labels { return s.labels }

// Iterator reuses the memory of the iterator before, if it was one of ours.
func (s *series) Iterator(old chunkenc.Iterator) chunkenc.Iterator {
	switch kind := s.column.Desc.Kind; {
	case kind.Native():
		it, ok := old.(*natives)
		if !ok {
			it = &natives{}
		}
		it.reset(s.column)
		return it
	case kind == metric.Histogram:
		it, ok := old.(*histograms)
		if !ok {
			it = &histograms{}
		}
		it.reset(s.column)
		return it
	}
	it, ok := old.(*floats)
	if !ok {
		it = &floats{}
	}
	it.cursor = cursor{column: s.column, at: -1}
	return it
}
