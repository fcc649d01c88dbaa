// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/prometheus/prometheus/util/teststorage"

	"rezolus/internal/metric"
)

// scriptNames are the scripts that ship with Prometheus, and whether they
// load native histograms. Those have exponential buckets, or custom bounds
// that are not H2's, which no metric.Column can hold: such samples reach the
// engine from Prometheus's own storage, merged with our series. All else in
// these scripts, and all of the others, runs over metric.Columns.
var scriptNames = map[string]bool{
	"testdata/aggregators.test":         true,
	"testdata/at_modifier.test":         false,
	"testdata/collision.test":           false,
	"testdata/duration_expression.test": false,
	"testdata/extended_vectors.test":    true,
	"testdata/fill-modifier.test":       false,
	"testdata/functions.test":           true,
	"testdata/histograms.test":          true,
	"testdata/info.test":                true,
	"testdata/limit.test":               true,
	"testdata/literals.test":            false,
	"testdata/name_label_dropping.test": false,
	"testdata/native_histograms.test":   true,
	"testdata/operators.test":           true,
	"testdata/range_queries.test":       true,
	"testdata/selectors.test":           false,
	"testdata/staleness.test":           false,
	"testdata/start_timestamps.test":    true,
	"testdata/subquery.test":            true,
	"testdata/trig_functions.test":      false,
	"testdata/type_and_unit.test":       false,
}

// TestPrometheusScripts runs every script that ships with Prometheus, as it
// is, on the engine that we ship over columns. Only the two settings that the
// scripts presume are Prometheus's: its lookback and its subquery step.
func TestPrometheusScripts(t *testing.T) {
	e := promqltest.NewTestEngineWithOpts(t, scriptOptions())
	ran := &scripts{T: t, native: map[string]bool{}}
	promqltest.RunBuiltinTestsWithStorage(ran, e, ran.storage)
	if diff := cmp.Diff(scriptNames, ran.native); diff != "" {
		t.Errorf("scripts, and whether they load native histograms (-want +got):\n%s", diff)
	}
}

func scriptOptions() promql.EngineOpts {
	o := engineOptions(Options{Lookback: 5 * time.Minute, MaxSamples: promqltest.DefaultMaxSamplesPerQuery})
	o.NoStepSubqueryIntervalFn = func(int64) int64 { return time.Minute.Milliseconds() }
	return o
}

// scripts runs the scripts as subtests and notes which there were.
type scripts struct {
	*testing.T
	now    string // the script that runs
	native map[string]bool
}

func (s *scripts) Run(name string, f func(*testing.T)) bool {
	s.now, s.native[name] = name, false
	return s.T.Run(name, f)
}

func (s *scripts) storage(t testing.TB) storage.Storage {
	name := s.now
	return &scriptStorage{
		Storage: teststorage.New(t, func(o *tsdb.Options) {
			o.EnableSTStorage, o.EnableHistogramSTEncoding = true, true
			o.FloatChunkEncoding = chunkenc.EncXOR2
		}),
		columns:  map[string]*metric.Column{},
		onNative: func() { s.native[name] = true },
	}
}

// scriptStorage keeps floats in columns, as gauges, and native histograms in
// Prometheus's storage.
type scriptStorage struct {
	storage.Storage
	columns  map[string]*metric.Column
	onNative func()
}

func (s *scriptStorage) AppenderV2(ctx context.Context) storage.AppenderV2 {
	return scriptAppender{s.Storage.AppenderV2(ctx), s}
}

type scriptAppender struct {
	storage.AppenderV2
	to *scriptStorage
}

func (a scriptAppender) Append(ref storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, o storage.AppendV2Options) (storage.SeriesRef, error) {
	if h != nil || fh != nil {
		a.to.onNative()
		return a.AppenderV2.Append(ref, ls, st, t, v, h, fh, o)
	}
	key := ls.String()
	if a.to.columns[key] == nil {
		a.to.columns[key] = newColumn(ls)
	}
	insert(a.to.columns[key], st, t, v)
	return 1, nil
}

func newColumn(ls labels.Labels) *metric.Column {
	d := &metric.Desc{Kind: metric.Gauge, Float: true}
	c := &metric.Column{Desc: d}
	ls.Range(func(l labels.Label) {
		if l.Name == nameLabel {
			d.Name = l.Value
			return
		}
		d.Keys = append(d.Keys, l.Name)
		c.Labels = append(c.Labels, l.Value)
	})
	return c
}

// insert puts a sample where its time is; a stale marker ends the series.
func insert(c *metric.Column, st, t int64, v float64) {
	if value.IsStaleNaN(v) {
		i, _ := slices.BinarySearch(c.Gone, t*nsPerMs)
		c.Gone = slices.Insert(c.Gone, i, t*nsPerMs)
		return
	}
	i, _ := slices.BinarySearch(c.Time, t*nsPerMs)
	c.Time = slices.Insert(c.Time, i, t*nsPerMs)
	c.Start = slices.Insert(c.Start, i, st*nsPerMs)
	c.Word = slices.Insert(c.Word, i, math.Float64bits(v))
}

// Querier is ours over the columns, merged with Prometheus's.
func (s *scriptStorage) Querier(mint, maxt int64) (storage.Querier, error) {
	f := &fakeReader{}
	for _, key := range slices.Sorted(maps.Keys(s.columns)) {
		f.columns = append(f.columns, *s.columns[key])
	}
	ours, _ := queryable{r: f}.Querier(mint, maxt)
	theirs, err := s.Storage.Querier(mint, maxt)
	return scriptQuerier{ours, theirs}, err
}

type scriptQuerier struct{ ours, theirs storage.Querier }

func (q scriptQuerier) Close() error { return q.theirs.Close() }

func (q scriptQuerier) Select(ctx context.Context, _ bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	return storage.NewMergeSeriesSet([]storage.SeriesSet{
		q.ours.Select(ctx, true, hints, ms...), q.theirs.Select(ctx, true, hints, ms...),
	}, 0, storage.ChainedSeriesMerge)
}

func (q scriptQuerier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	panic("the engine does not ask for label names")
}

func (q scriptQuerier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	panic("the engine does not ask for label values")
}
