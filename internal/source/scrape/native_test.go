// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"bytes"
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// delimited are families as an endpoint sends them.
func delimited(t testing.TB, families ...*dto.MetricFamily) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, f := range families {
		if _, err := protodelim.MarshalTo(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func family1(name string, typ dto.MetricType, metrics ...*dto.Metric) *dto.MetricFamily {
	return &dto.MetricFamily{Name: &name, Type: &typ, Metric: metrics, Help: proto.String("what " + name + " is.")}
}

func histogramOf(name string, h *dto.Histogram) *dto.MetricFamily {
	return family1(name, dto.MetricType_HISTOGRAM, &dto.Metric{Histogram: h})
}

// binaries is a reader of protocol buffers.
type binaries struct {
	*reader
	proto *protobuf
}

func newBinaries(t testing.TB, e Endpoint) *binaries {
	r := newReader(t, e)
	return &binaries{r, newProtobuf(r.table)}
}

func (r *binaries) scrapes(body []byte) error {
	r.wall += 1e9
	r.begin(r.wall)
	err := r.proto.parse(body)
	if err == nil {
		err = r.finish()
	}
	if err != nil {
		r.abandon()
		return err
	}
	r.proto.settle()
	r.write(&r.frame)
	return nil
}

func (r *binaries) says(families ...*dto.MetricFamily) {
	r.t.Helper()
	if err := r.scrapes(delimited(r.t, families...)); err != nil {
		r.t.Fatal(err)
	}
}

// words are those of a native histogram that are not zero, by their slots.
func words(f *metric.Frame, name string) map[hist.Slot]uint64 {
	m := map[hist.Slot]uint64{}
	s := find(f, name)
	if s == nil || !s.Desc.Kind.Native() {
		return nil
	}
	for i, slot := range s.Desc.Slots {
		if w := f.Values[s.Off+i]; w != 0 {
			m[slot] = w
		}
	}
	return m
}

func (r *binaries) holds(name string, want map[hist.Slot]uint64) {
	r.t.Helper()
	got := words(&r.frame, name)
	if len(got) != len(want) {
		r.t.Errorf("%s has %v, want %v", name, got, want)
		return
	}
	for slot, w := range want {
		if got[slot] != w {
			r.t.Errorf("%s: slot %d is %#x, want %#x", name, slot, got[slot], w)
		}
	}
}

func float(v float64) uint64 { return math.Float64bits(v) }

func up1(i int32) hist.Slot   { return hist.BucketSlot(i, false) }
func down1(i int32) hist.Slot { return hist.BucketSlot(i, true) }

func TestNativeHistogram(t *testing.T) {
	r := newBinaries(t, Endpoint{})
	r.says(histogramOf("Latency_Seconds", &dto.Histogram{
		SampleCount: proto.Uint64(20), SampleSum: proto.Float64(-7.5), Schema: proto.Int32(-2), ZeroThreshold: proto.Float64(1e-9), ZeroCount: proto.Uint64(4),
		PositiveSpan:  []*dto.BucketSpan{{Offset: proto.Int32(-3), Length: proto.Uint32(2)}, {Offset: proto.Int32(0), Length: proto.Uint32(1)}, {Offset: proto.Int32(4), Length: proto.Uint32(1)}},
		PositiveDelta: []int64{5, -3, -2, 1}, // 5 2 0 1, of -3 -2 -1 4
		NegativeSpan:  []*dto.BucketSpan{{Offset: proto.Int32(1), Length: proto.Uint32(1)}, {Offset: proto.Int32(6), Length: proto.Uint32(1)}},
		NegativeDelta: []int64{7, -6}, // 7 1, of 1 and 8
	}))
	r.holds("latency_seconds", map[hist.Slot]uint64{hist.SlotZero: 4, hist.SlotCount: 20, hist.SlotSum: float(-7.5), hist.SlotSchema: math.MaxUint64 - 1,
		hist.SlotThreshold: float(1e-9), up1(-3): 5, up1(-2): 2, up1(4): 1, down1(1): 7, down1(8): 1})
	d := find(&r.frame, "latency_seconds").Desc
	if d.Kind != metric.Native || d.Float || d.Unit != "seconds" || d.Help != "what Latency_Seconds is" || len(r.laid) != 1 {
		t.Errorf("%+v, %d series", d, len(r.laid))
	}
	// Blocks of 16 around all of them, and no more.
	if lo, hi := slices.Min(d.Slots), d.Slots[len(d.Slots)-5]; lo != down1(31) || hi != up1(31) || len(d.Slots) != 5+48+64 {
		t.Errorf("%d slots from %d to %d", len(d.Slots), lo, hi)
	}
}

func TestFloatAndGaugeHistograms(t *testing.T) {
	r := newBinaries(t, Endpoint{})
	h := &dto.Histogram{SampleCountFloat: proto.Float64(3.5), SampleSum: proto.Float64(1), Schema: proto.Int32(0), ZeroCountFloat: proto.Float64(0.25), ZeroThreshold: proto.Float64(0.5),
		PositiveSpan: []*dto.BucketSpan{{Offset: proto.Int32(0), Length: proto.Uint32(2)}}, PositiveCount: []float64{1.25, 2}}
	whole := &dto.Histogram{SampleCount: proto.Uint64(9), SampleSum: proto.Float64(2), ZeroThreshold: proto.Float64(0.5),
		PositiveSpan: []*dto.BucketSpan{{Offset: proto.Int32(1), Length: proto.Uint32(1)}}, PositiveDelta: []int64{9}}
	r.says(family1("depth", dto.MetricType_GAUGE_HISTOGRAM, &dto.Metric{Histogram: h}), histogramOf("size", whole))
	r.holds("depth", map[hist.Slot]uint64{hist.SlotZero: float(0.25), hist.SlotCount: float(3.5), hist.SlotSum: float(1), hist.SlotThreshold: float(0.5), up1(0): float(1.25), up1(1): float(2)})
	if d := find(&r.frame, "depth").Desc; d.Kind != metric.NativeGauge || !d.Float || d.Kind.String() != "gaugehistogram" {
		t.Errorf("%+v", d)
	}
	r.holds("size", map[hist.Slot]uint64{hist.SlotCount: 9, hist.SlotSum: float(2), hist.SlotThreshold: float(0.5), up1(1): 9})
	// Where one series of a metric has fractions, all are floats.
	r.says(histogramOf("size", &dto.Histogram{SampleCountFloat: proto.Float64(9.5), SampleSum: proto.Float64(2), ZeroThreshold: proto.Float64(0.5),
		PositiveSpan: []*dto.BucketSpan{{Offset: proto.Int32(1), Length: proto.Uint32(1)}}, PositiveCount: []float64{9.5}}))
	r.says(histogramOf("size", whole))
	r.holds("size", map[hist.Slot]uint64{hist.SlotCount: float(9), hist.SlotSum: float(2), hist.SlotThreshold: float(0.5), up1(1): float(9)})
}

// TestNativeHistogramsThatAreNone are dropped, counted, and nothing else is.
func TestNativeHistogramsThatAreNone(t *testing.T) {
	span := func(offset int32, n uint32) *dto.BucketSpan { return &dto.BucketSpan{Offset: &offset, Length: &n} }
	for name, h := range map[string]*dto.Histogram{
		"schema":         {Schema: proto.Int32(9), ZeroCount: proto.Uint64(1)},
		"custom":         {Schema: proto.Int32(-53), ZeroCount: proto.Uint64(1)},
		"few counts":     {PositiveSpan: []*dto.BucketSpan{span(0, 2)}, PositiveDelta: []int64{1}},
		"many counts":    {PositiveSpan: []*dto.BucketSpan{span(0, 1)}, PositiveDelta: []int64{1, 1}},
		"below zero":     {PositiveSpan: []*dto.BucketSpan{span(0, 2)}, PositiveDelta: []int64{1, -2}},
		"backwards":      {PositiveSpan: []*dto.BucketSpan{span(0, 1), span(-1, 1)}, PositiveDelta: []int64{1, 1}},
		"far":            {PositiveSpan: []*dto.BucketSpan{span(1<<20, 1)}, PositiveDelta: []int64{1}},
		"endless":        {PositiveSpan: []*dto.BucketSpan{span(0, math.MaxUint32)}, PositiveDelta: []int64{1}},
		"not a number":   {PositiveSpan: []*dto.BucketSpan{span(0, 1)}, PositiveCount: []float64{math.NaN()}},
		"two ways":       {PositiveSpan: []*dto.BucketSpan{span(0, 1)}, PositiveCount: []float64{1}, PositiveDelta: []int64{1}},
		"threshold":      {ZeroThreshold: proto.Float64(math.NaN()), ZeroCount: proto.Uint64(1)},
		"less than none": {SampleCountFloat: proto.Float64(-1), ZeroCountFloat: proto.Float64(1)},
	} {
		r := newBinaries(t, Endpoint{})
		r.says(histogramOf("x", h), family1("y", dto.MetricType_GAUGE, &dto.Metric{Gauge: &dto.Gauge{Value: proto.Float64(7)}}))
		if got := values(&r.frame); r.drops[badHistogram] != 1 || len(got) != 1 || got["y"] != 7 {
			t.Errorf("%s: %v, dropped %v", name, got, r.drops)
		}
	}
}

// TestBucketsCountAsSeries do, as those of a classic histogram.
func TestBucketsCountAsSeries(t *testing.T) {
	r := newBinaries(t, Endpoint{MaxSeries: 3})
	h := func(n int) *dto.Histogram {
		return &dto.Histogram{SampleCount: proto.Uint64(uint64(n)), PositiveSpan: []*dto.BucketSpan{{Offset: proto.Int32(0), Length: proto.Uint32(uint32(n))}},
			PositiveDelta: append([]int64{1}, make([]int64, n-1)...)}
	}
	r.says(histogramOf("x", h(3)))
	if len(r.laid) != 1 || r.drops != [reasons]uint64{} {
		t.Errorf("%d series, dropped %v", len(r.laid), r.drops)
	}
	r.says(histogramOf("x", h(4)))
	if len(r.laid) != 0 || r.drops[overBound] != 1 {
		t.Errorf("%d series, dropped %v", len(r.laid), r.drops)
	}
}

// TestLayoutsGrow by blocks, keep what they have, and every count.
func TestLayoutsGrow(t *testing.T) {
	r := newBinaries(t, Endpoint{})
	at := func(index int32, n int64) *dto.MetricFamily {
		return histogramOf("x", &dto.Histogram{SampleCount: proto.Uint64(uint64(n)), Schema: proto.Int32(3),
			PositiveSpan: []*dto.BucketSpan{{Offset: &index, Length: proto.Uint32(1)}}, PositiveDelta: []int64{n}})
	}
	slots := 5 + 48 // the block of the first bucket, and those beside it
	for _, i := range []int32{5, -16, 0, 31} {
		if r.says(at(i, int64(40+i))); words(&r.frame, "x")[up1(i)] != uint64(40+i) || len(find(&r.frame, "x").Desc.Slots) != slots {
			t.Errorf("index %d: %v in %d slots", i, words(&r.frame, "x"), len(find(&r.frame, "x").Desc.Slots))
		}
	}
	r.says(at(32, 1000))
	if d := find(&r.frame, "x").Desc; len(d.Slots) != slots+32 {
		t.Errorf("%d slots, want %d", len(d.Slots), slots+32)
	}
	r.holds("x", map[hist.Slot]uint64{hist.SlotCount: 1000, hist.SlotSchema: 3, up1(32): 1000})
}

// TestBothFormsSayTheSame is of what Prometheus's own library writes, in both.
func TestBothFormsSayTheSame(t *testing.T) {
	registry := prometheus.NewRegistry()
	counted := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "http_requests_total", Help: "Requests, \"all\"\nof them."}, []string{"code", "path"})
	counted.WithLabelValues("200", "/a\"\\\n").Add(17)
	counted.WithLabelValues("500", "/").Add(0.5)
	level := prometheus.NewGauge(prometheus.GaugeOpts{Name: "queue", Help: "Queued."})
	level.Set(-3)
	times := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "rpc_seconds", Help: "Times.", Buckets: []float64{0.005, 1, 1e6}})
	quantiles := prometheus.NewSummary(prometheus.SummaryOpts{Name: "sizes_bytes", Help: "Sizes.", Objectives: map[float64]float64{0.5: 0.01, 0.99: 0.001}})
	for _, v := range []float64{0.001, 0.5, 2, 1e9} {
		times.Observe(v)
		quantiles.Observe(v)
	}
	registry.MustRegister(counted, level, times, quantiles)
	a := serve(t)
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	read := func(header http.Header) (metric.Frame, *Source) {
		a.by(func(w http.ResponseWriter, r *http.Request) {
			for k, v := range header {
				r.Header[k] = v
			}
			handler.ServeHTTP(w, r)
		})
		s := open(t, Endpoint{URL: a.URL})
		var f metric.Frame
		if err := s.Read(&f); err != nil {
			t.Fatal(err)
		}
		return f, s
	}
	text, _ := read(http.Header{"Accept": {"text/plain"}})
	binary, s := read(nil)
	if !bytes.Contains(s.body, []byte{0x0a, 0x05, 'q', 'u', 'e', 'u', 'e'}) {
		t.Fatalf("the answer is no protocol buffer: %q", s.body)
	}
	if len(text.Schema.Series) != 13 || len(text.Schema.Series) != len(binary.Schema.Series) {
		t.Fatalf("%d series as text, %d as protocol buffers", len(text.Schema.Series), len(binary.Schema.Series))
	}
	for i := range text.Schema.Series {
		a, b := &text.Schema.Series[i], &binary.Schema.Series[i]
		if a.Desc.Name != b.Desc.Name || a.Desc.Help != b.Desc.Help || a.Desc.Kind != b.Desc.Kind || a.Desc.Unit != b.Desc.Unit || a.Desc.Float != b.Desc.Float ||
			!slices.Equal(a.Desc.Keys, b.Desc.Keys) || !slices.Equal(a.Values, b.Values) || text.Values[i] != binary.Values[i] {
			t.Errorf("as text %+v %v %d\nas protocol buffers %+v %v %d", a.Desc, a.Values, text.Values[i], b.Desc, b.Values, binary.Values[i])
		}
		if began := time.Since(time.Unix(0, b.Start)); b.Desc.Kind == metric.Counter && (began < 0 || began > time.Hour) {
			t.Errorf("%s began %v ago", b.Desc.Name, began)
		}
	}
}

func TestProtobufRefuses(t *testing.T) {
	r := newBinaries(t, Endpoint{})
	good := delimited(t, histogramOf("x", &dto.Histogram{SampleCount: proto.Uint64(1), ZeroCount: proto.Uint64(1)}))
	for i := 1; i < len(good); i++ {
		if err := r.scrapes(good[:i]); err == nil {
			t.Errorf("the first %d bytes of %d are accepted", i, len(good))
		}
	}
	for name, f := range map[string]*dto.MetricFamily{
		"no name": {}, "no value": family1("x", dto.MetricType_GAUGE, &dto.Metric{}), "another's value": family1("x", dto.MetricType_GAUGE, &dto.Metric{Counter: &dto.Counter{}}),
		"a new type": family1("x", 6, &dto.Metric{Gauge: &dto.Gauge{}}),
	} {
		if err := r.scrapes(delimited(t, f)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	a := serve(t)
	a.by(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=text")
		w.Write([]byte("name: \"x\""))
	})
	fails(t, open(t, Endpoint{URL: a.URL}), byContent)
}

// TestAMetricBecomesAHistogram is of a name that stands for something else
// after a restart, and within one answer.
func TestAMetricBecomesAHistogram(t *testing.T) {
	r := newBinaries(t, Endpoint{})
	plain := family1("x", dto.MetricType_GAUGE, &dto.Metric{Gauge: &dto.Gauge{Value: proto.Float64(7)}})
	native := histogramOf("x", &dto.Histogram{SampleCount: proto.Uint64(1), ZeroCount: proto.Uint64(1)})
	for range 2 {
		r.says(plain)
		if s := find(&r.frame, "x"); s.Desc.Kind != metric.Gauge || r.frame.Values[s.Off] != float(7) || len(r.laid) != 1 {
			t.Errorf("%+v", s)
		}
		r.says(native)
		r.holds("x", map[hist.Slot]uint64{hist.SlotZero: 1, hist.SlotCount: 1})
	}
	for range 2 {
		if r.says(plain, native, plain); len(r.laid) != 1 || r.drops[twice] != 2 || find(&r.frame, "x").Desc.Kind != metric.Gauge {
			t.Errorf("%d series, dropped %v", len(r.laid), r.drops)
		}
	}
}

// manyNative are families of n native histograms in all, of 40 buckets each.
func manyNative(n int) *dto.MetricFamily {
	f := family1("rpc_seconds", dto.MetricType_HISTOGRAM)
	for i := range n {
		h := &dto.Histogram{SampleCount: proto.Uint64(40), SampleSum: proto.Float64(float64(i)), Schema: proto.Int32(3), ZeroThreshold: proto.Float64(1e-128),
			CreatedTimestamp: timestamppb.New(time.Unix(1e8, 5)),
			PositiveSpan:     []*dto.BucketSpan{{Offset: proto.Int32(-60), Length: proto.Uint32(40)}}, PositiveDelta: append([]int64{1}, make([]int64, 39)...)}
		f.Metric = append(f.Metric, &dto.Metric{Histogram: h, Label: []*dto.LabelPair{{Name: proto.String("method"), Value: proto.String(string(rune('a'+i%26)) + string(rune('a'+i/26)))}}})
	}
	return f
}

func TestNativeScrapeAllocatesNothing(t *testing.T) {
	r := newBinaries(t, Endpoint{})
	bodies := [2][]byte{delimited(t, manyNative(20)), nil}
	bodies[1] = delimited(t, manyNative(20))
	n := 0
	scrape := func() {
		n++
		if err := r.scrapes(bodies[n%2]); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		scrape()
	}
	if n := testing.AllocsPerRun(10, scrape); n != 0 {
		t.Errorf("%v allocations in a scrape of the same series", n)
	}
	if len(r.laid) != 20 || words(&r.frame, "rpc_seconds")[up1(-30)] != 1 {
		t.Errorf("%d series", len(r.laid))
	}
}

// BenchmarkNative is a scrape of 250 native histograms with 10,000 buckets in
// all, without the network.
func BenchmarkNative(b *testing.B) {
	r := newBinaries(b, Endpoint{MaxSeries: 20_000})
	body := delimited(b, manyNative(250))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := r.scrapes(body); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzProtobuf(f *testing.F) {
	f.Add(delimited(f, manyNative(3)))
	f.Add(delimited(f, histogramOf("x", &dto.Histogram{SampleCountFloat: proto.Float64(3.5), NegativeSpan: []*dto.BucketSpan{{Length: proto.Uint32(1)}},
		NegativeCount: []float64{3.5}, Bucket: []*dto.Bucket{{UpperBound: proto.Float64(1), CumulativeCount: proto.Uint64(1)}}})))
	f.Add(delimited(f, family1("c", dto.MetricType_COUNTER, &dto.Metric{Counter: &dto.Counter{Value: proto.Float64(3), CreatedTimestamp: timestamppb.New(time.Unix(7, 9))}}),
		family1("s", dto.MetricType_SUMMARY, &dto.Metric{Summary: &dto.Summary{Quantile: []*dto.Quantile{{Quantile: proto.Float64(0.5), Value: proto.Float64(math.NaN())}}}})))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := newBinaries(t, Endpoint{MaxSeries: 50})
		first := r.scrapes(body)
		one := r.frame.Schema
		// What is accepted once is accepted again, with the same series.
		second := r.scrapes(body)
		if (first == nil) != (second == nil) || first == nil && r.frame.Schema.Hash != one.Hash {
			t.Fatalf("%v, then %v", first, second)
		}
		if first != nil {
			return
		}
		for _, s := range r.laid {
			if n := s.last.native; n != nil && (len(n.buckets) != len(n.counts) || !slices.IsSorted(n.buckets)) {
				t.Fatalf("%+v", n)
			}
		}
	})
}

// TestHistogramsThatNeedTooMuch are dropped: one that is scattered over more
// slots than a metric may have, and what a frame has no room for.
func TestHistogramsThatNeedTooMuch(t *testing.T) {
	scattered := func(label string, n int) *dto.Metric {
		h := &dto.Histogram{SampleCount: proto.Uint64(uint64(n)), PositiveDelta: append([]int64{1}, make([]int64, n-1)...)}
		for i := range n {
			offset := int32(100)
			if i == 0 {
				offset = -300_000
			}
			h.PositiveSpan = append(h.PositiveSpan, &dto.BucketSpan{Offset: &offset, Length: proto.Uint32(1)})
		}
		return &dto.Metric{Histogram: h, Label: []*dto.LabelPair{{Name: proto.String("l"), Value: &label}}}
	}
	r := newBinaries(t, Endpoint{MaxSeries: 100_000})
	for range 2 {
		r.says(family1("x", dto.MetricType_HISTOGRAM, scattered("a", 1400)), histogramOf("y", &dto.Histogram{ZeroCount: proto.Uint64(1), SampleCount: proto.Uint64(1)}))
		if len(r.laid) != 1 || find(&r.frame, "y") == nil || r.drops[badHistogram] != 1 {
			t.Errorf("%d series, dropped %v", len(r.laid), r.drops)
		}
	}
	f := family1("x", dto.MetricType_HISTOGRAM)
	for i := range 30 {
		f.Metric = append(f.Metric, scattered(string(rune('a'+i)), 1000))
	}
	for range 2 {
		r.says(f)
		slots := len(r.laid[0].family.slots)
		if want := maxWords / slots; len(r.laid) != want || r.drops[overBound] != uint64(30-want) || len(r.frame.Values) != want*slots {
			t.Errorf("%d series of %d slots, dropped %v, want %d", len(r.laid), slots, r.drops, want)
		}
	}
}
