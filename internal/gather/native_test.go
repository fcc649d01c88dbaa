// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/teststorage"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rezolus/internal/metric"
	"rezolus/internal/query"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

// program is one that Prometheus's own library measures. Before each answer it
// observes some values, of a wider range each time, and it restarts once.
type program struct {
	mu       sync.Mutex
	r        *rand.Rand
	registry *client.Registry
	sizes    client.Histogram
	scrapes  client.Gauge
	created  time.Time // as it says, in whole milliseconds like Prometheus
	n        int
	answered time.Time              // the last time; before the first, when the test began
	said     map[int]*dto.Histogram // by the number of the answer
}

const restarts = 8 // the answer before which it does

// begin restarts it. It says that it did so when it had answered last: that is
// after a scrape began and before the next tick, however late scrapes are. Of the
// true moment, which may be long after the tick that has the answer, Prometheus
// could not be told: a sample is no older than its start.
func (p *program) begin() {
	p.created = p.answered.Truncate(time.Millisecond).Add(2 * time.Millisecond)
	p.registry = client.NewRegistry()
	p.sizes = client.NewHistogram(client.HistogramOpts{Name: "sizes", NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 60, NativeHistogramZeroThreshold: 1e-3})
	p.scrapes = client.NewGauge(client.GaugeOpts{Name: "answers"})
	p.registry.MustRegister(p.sizes, p.scrapes)
}

func (p *program) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.URL.Path != "/metrics" {
		http.NotFound(w, r)
		return
	}
	if p.n++; p.n == 1 || p.n == restarts {
		p.begin()
	}
	p.answered = time.Now()
	for range 50 {
		v := math.Exp(2*p.r.NormFloat64() + 4*float64(p.n%restarts))
		if p.r.IntN(5) == 0 {
			v = -v
		}
		p.sizes.Observe(v)
	}
	p.scrapes.Set(float64(p.n))
	families, err := p.registry.Gather()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	for _, f := range families {
		if f.GetName() == "sizes" {
			p.said[p.n] = f.Metric[0].Histogram
			p.said[p.n].CreatedTimestamp = timestamppb.New(p.created)
		}
	}
	these := client.GathererFunc(func() ([]*dto.MetricFamily, error) { return families, nil })
	promhttp.HandlerFor(these, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// TestNativeHistogramsEndToEnd scrapes a program into a recording and asks it
// what Prometheus's engine is asked of the very same histograms.
func TestNativeHistogramsEndToEnd(t *testing.T) {
	p := &program{r: rand.New(rand.NewPCG(1, 2)), answered: time.Now(), said: map[int]*dto.Histogram{}}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	s, stop := gather(t, 100*time.Millisecond, scraped(server.URL, "web"))
	answered := func(tick *metric.Snapshot) int {
		w, _ := value(tick, "answers")
		return int(math.Float64frombits(w))
	}
	s.until(t, "an answer well after the restart", func() bool {
		return len(s.ticks) > 0 && answered(&s.ticks[len(s.ticks)-1]) >= restarts+6
	})
	stop()

	fs := vfs.NewMem()
	w, err := store.Create(fs, "x.rzr", store.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	theirs := teststorage.New(t, func(o *tsdb.Options) {
		o.EnableSTStorage, o.EnableHistogramSTEncoding = true, true
		o.FloatChunkEncoding = chunkenc.EncXOR2
	})
	app := theirs.AppenderV2(context.Background())
	var at []time.Time
	starts := map[int64]int64{}
	layouts, schemas := map[int]bool{}, map[int32]bool{}
	for i := range s.ticks {
		tick := &s.ticks[i]
		if err := w.Put(tick); err != nil {
			t.Fatal(err)
		}
		n := answered(tick)
		if n == 0 || len(at) > 0 && tick.Wall/1e6 <= at[len(at)-1].UnixMilli() {
			continue
		}
		for k := range tick.Frames {
			for _, e := range tick.Frames[k].Schema.Series {
				layouts[len(e.Desc.Slots)] = true // none, of what is no native histogram
			}
		}
		at = append(at, time.UnixMilli(tick.Wall/1e6))
		h := p.said[n]
		schemas[h.GetSchema()] = true
		created := h.CreatedTimestamp.AsTime().UnixMilli()
		if starts[created] == 0 { // of an answer just before a tick, those two milliseconds may reach it
			starts[created] = min(created, tick.Wall/1e6-1)
		}
		if _, err := app.Append(0, labels.FromStrings("__name__", "sizes"), starts[created], tick.Wall/1e6, 0, nil, plainly(h), storage.AppendV2Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if len(at) < 10 || len(layouts) < 3 || len(schemas) < 2 {
		t.Fatalf("%d ticks, %d layouts, schemas %v: too few for the test to say anything", len(at), len(layouts)-1, schemas)
	}
	recording, err := store.Open(fs, "x.rzr")
	if err != nil {
		t.Fatal(err)
	}
	defer recording.Close()
	agree(t, recording, theirs, at)
}

// plainly is what a message says, with nothing of the code under test.
func plainly(h *dto.Histogram) *histogram.FloatHistogram {
	whole := histogram.Histogram{Schema: h.GetSchema(), ZeroThreshold: h.GetZeroThreshold(), ZeroCount: h.GetZeroCount(), Count: h.GetSampleCount(), Sum: h.GetSampleSum(),
		PositiveBuckets: h.PositiveDelta, NegativeBuckets: h.NegativeDelta}
	for _, s := range h.PositiveSpan {
		whole.PositiveSpans = append(whole.PositiveSpans, histogram.Span{Offset: s.GetOffset(), Length: s.GetLength()})
	}
	for _, s := range h.NegativeSpan {
		whole.NegativeSpans = append(whole.NegativeSpans, histogram.Span{Offset: s.GetOffset(), Length: s.GetLength()})
	}
	return whole.ToFloat(nil)
}

// agree asks both the same at each tick.
func agree(t *testing.T, ours query.Reader, theirs storage.Queryable, at []time.Time) {
	t.Helper()
	ctx := context.Background()
	e, prometheus := query.New(query.Options{}), promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Parser: parser.NewParser(parser.Options{EnableExperimentalFunctions: true}), Timeout: time.Minute, LookbackDelta: time.Minute, UseStartTimestamps: true})
	values := 0
	for _, expr := range []string{"histogram_count(sizes)", "histogram_sum(sizes)", "histogram_quantile(0.03, sizes)", "histogram_quantile(0.5, sizes)", "histogram_quantile(0.99, sizes)",
		"histogram_quantile(0.9, rate(sizes[350ms]))", "histogram_sum(increase(sizes[350ms]))", "histogram_count(increase(sizes[1050ms]))", "histogram_fraction(-2, 1e3, sizes)", "resets(sizes[1s])", "start_timestamp(sizes)"} {
		for _, when := range at {
			got, err := e.Instant(ctx, ours, expr, when)
			if err != nil {
				t.Fatal(err)
			}
			q, err := prometheus.NewInstantQuery(ctx, theirs, nil, expr, when)
			if err != nil {
				t.Fatal(err)
			}
			want := q.Exec(ctx)
			if want.Err != nil {
				t.Fatal(want.Err)
			}
			a, b := "nothing", "nothing"
			if len(got.Series) > 0 {
				a = fmt.Sprintf("%.9g", got.Series[0].Points[0].V)
			}
			if v := want.Value.(promql.Vector); len(v) > 0 {
				b = fmt.Sprintf("%.9g", v[0].F)
				values++
			}
			if a != b {
				t.Errorf("%s at %d: %s, Prometheus says %s", expr, when.UnixMilli(), a, b)
			}
			q.Close()
		}
	}
	if values < 8*len(at) {
		t.Errorf("%d values of %d ticks: too few for the test to say anything", values, len(at))
	}
}
