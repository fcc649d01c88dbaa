// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"rezolus/internal/metric"
)

// reader is a table with a parser, and the frame of its last scrape.
type reader struct {
	*table
	text  *text
	t     testing.TB
	wall  int64
	frame metric.Frame
}

func newReader(t testing.TB, e Endpoint) *reader {
	t.Helper()
	e.URL, e.Name = "http://x", "x"
	e, _, err := e.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	tab := newTable("scrape/x", e, func(name string) bool { return name == "cpu_usage" })
	return &reader{table: tab, text: newText(tab), t: t, wall: 1e18}
}

// scrapes is a scrape that answers with body.
func (r *reader) scrapes(body string) error {
	r.wall += 1e9
	r.begin(r.wall)
	err := r.text.parse([]byte(body))
	if err == nil {
		err = r.finish()
	}
	if err != nil {
		r.abandon()
		return err
	}
	r.text.settle()
	r.write(&r.frame)
	return nil
}

// says is a good scrape.
func (r *reader) says(body string) {
	r.t.Helper()
	if err := r.scrapes(body); err != nil {
		r.t.Fatal(err)
	}
}

// values is what a frame says, by name and labels, of counters and gauges.
func values(f *metric.Frame) map[string]float64 {
	m := map[string]float64{}
	for _, s := range f.Schema.Series {
		id := s.Desc.Name
		for i, k := range s.Desc.Keys {
			if k != endpointKey && s.Values[i] != "" {
				id += " " + k + "=" + s.Values[i]
			}
		}
		m[id] = s.Desc.Value(f.Values[s.Off])
	}
	return m
}

func find(f *metric.Frame, name string) *metric.Series {
	for i := range f.Schema.Series {
		if s := &f.Schema.Series[i]; s.Desc.Name == name {
			return s
		}
	}
	return nil
}

const exposition = `# HELP http_requests_total The total number of HTTP requests.
# TYPE http_requests_total counter
http_requests_total{method="post",code="200"} 1027 1395066363000
http_requests_total{method="post",code="400"}    3 1395066363000

# Escaping in label values:
msdos_file_access_time_seconds{path="C:\\DIR\\FILE.TXT",error="Cannot find file:\n\"FILE.TXT\""} 1.458255915e9
# Minimalistic line:
metric_without_timestamp_and_labels 12.47
something_weird{problem="division by zero"} +Inf -3982045
# TYPE http_request_duration_seconds histogram
http_request_duration_seconds_bucket{le="0.05"} 24054
http_request_duration_seconds_bucket{le="+Inf"} 144320
http_request_duration_seconds_sum 53423.5
http_request_duration_seconds_count 144320
# TYPE rpc_duration_seconds summary
rpc_duration_seconds{quantile="0.5"} 4773
rpc_duration_seconds_sum 1.7560473e+07
rpc_duration_seconds_count 2693
# TYPE queue gauge
queue{} -3
	cache_ratio { kind = "a}b" , } 0.75	` + `
`

func TestText(t *testing.T) {
	r := newReader(t, Endpoint{})
	r.says(exposition)
	want := map[string]float64{
		"http_requests_total code=200 method=post":                                                    1027,
		"http_requests_total code=400 method=post":                                                    3,
		"msdos_file_access_time_seconds error=Cannot find file:\n\"FILE.TXT\" path=C:\\DIR\\FILE.TXT": 1.458255915e9,
		"metric_without_timestamp_and_labels":                                                         12.47,
		"something_weird problem=division by zero":                                                    math.Inf(1),
		"http_request_duration_seconds_bucket le=0.05":                                                24054,
		"http_request_duration_seconds_bucket le=+Inf":                                                144320,
		"http_request_duration_seconds_sum":                                                           53423.5,
		"http_request_duration_seconds_count":                                                         144320,
		"rpc_duration_seconds quantile=0.5":                                                           4773,
		"rpc_duration_seconds_sum":                                                                    17560473,
		"rpc_duration_seconds_count":                                                                  2693,
		"queue":                                                                                       -3,
		"cache_ratio kind=a}b":                                                                        0.75,
	}
	got := values(&r.frame)
	for id, v := range want {
		if g, ok := got[id]; !ok || g != v {
			t.Errorf("%s is %v, %v; want %v", id, g, ok, v)
		}
	}
	if len(got) != len(want) || r.drops != [reasons]uint64{} {
		t.Errorf("%d series, want %d; dropped %v", len(got), len(want), r.drops)
	}
	for name, want := range map[string]struct {
		kind  metric.Kind
		float bool
		unit  metric.Unit
	}{
		"http_requests_total":                  {metric.Counter, false, ""},
		"http_request_duration_seconds_bucket": {metric.Counter, false, ""},
		"http_request_duration_seconds_count":  {metric.Counter, false, ""},
		"http_request_duration_seconds_sum":    {metric.Gauge, true, "seconds"},
		"rpc_duration_seconds":                 {metric.Gauge, true, "seconds"},
		"rpc_duration_seconds_sum":             {metric.Gauge, true, "seconds"},
		"queue":                                {metric.Gauge, true, ""},
		"cache_ratio":                          {metric.Gauge, true, ""},
	} {
		d := find(&r.frame, name).Desc
		if d.Kind != want.kind || d.Float != want.float || d.Unit != want.unit {
			t.Errorf("%s is %+v", name, d)
		}
	}
	if h := find(&r.frame, "http_requests_total").Desc.Help; h != "The total number of HTTP requests" {
		t.Errorf("help %q", h)
	}
	if e, _ := find(&r.frame, "queue").Label(endpointKey); e != "x" {
		t.Errorf("endpoint %q", e)
	}
}

func TestOpenMetrics(t *testing.T) {
	r := newReader(t, Endpoint{})
	r.says(`# TYPE foo counter
# UNIT foo bytes
# HELP foo help with \"quotes\"
foo_total{a="b"} 17.0 1520879607.789 # {trace_id="KOO5S4vxi0o"} 0.67 1520879607.789
foo_created{a="b"} 1520872607.123
# TYPE bar histogram
bar_bucket{le="1.0"} 5 # {a="} 1 #"} 3
bar_bucket{le="+Inf"} 7
bar_gcount 7
# TYPE build info
build_info{version="1"} 1
# TYPE g gaugehistogram
g_bucket{le="1"} 5
g_gcount 5
# EOF`)
	got := values(&r.frame)
	for id, want := range map[string]float64{"foo_total a=b": 17, "foo_created a=b": 1520872607.123, "bar_bucket le=1.0": 5, "bar_bucket le=+Inf": 7,
		"build_info version=1": 1, "g_bucket le=1": 5, "g_gcount": 5} {
		if got[id] != want {
			t.Errorf("%s is %v, want %v", id, got[id], want)
		}
	}
	if k := find(&r.frame, "foo_total").Desc.Kind; k != metric.Counter {
		t.Errorf("foo_total is a %s", k)
	}
	if k := find(&r.frame, "g_bucket").Desc.Kind; k != metric.Gauge {
		t.Errorf("g_bucket is a %s", k)
	}
}

func TestSchemaStaysTheSame(t *testing.T) {
	r := newReader(t, Endpoint{})
	r.says(exposition)
	first := r.frame.Schema
	exposition := strings.Replace(exposition, " 1027 ", " 1029 ", 1)
	r.says(exposition)
	if r.frame.Schema != first || values(&r.frame)["http_requests_total code=200 method=post"] != 1029 {
		t.Error("the same series have another schema")
	}
	// Another order of lines and labels is the same membership.
	lines := strings.SplitAfter(strings.Replace(exposition, `{method="post",code="400"}`, `{code="400",method="post"}`, 1), "\n")
	lines[2], lines[3] = lines[3], lines[2]
	r.says(strings.Join(lines, ""))
	if r.frame.Schema.Hash != first.Hash {
		t.Error("another order gives another schema")
	}
	r.says(exposition + "more 1\n")
	if r.frame.Schema == first || len(values(&r.frame)) != 15 {
		t.Error("a new series is not there")
	}
	r.says(exposition)
	if r.frame.Schema.Hash != first.Hash {
		t.Error("a series that went is still there")
	}
	if len(r.known) != 14 || len(r.written) != 15 || len(r.families) != 12 {
		t.Errorf("%d series, %d written, %d families are kept", len(r.known), len(r.written), len(r.families))
	}
}

func TestLabelsInAnyOrderTakeNoMemory(t *testing.T) {
	r := newReader(t, Endpoint{})
	for i := range 1000 {
		r.says(fmt.Sprintf("a{b=\"1\",%*s c=\"2\"} %d\n", i, "", i))
	}
	if len(r.laid) != 1 || len(r.written) > 100 {
		t.Errorf("%d series, written in %d ways", len(r.laid), len(r.written))
	}
}

func TestCounters(t *testing.T) {
	r := newReader(t, Endpoint{})
	counter := func(value string, want float64, start int64, float bool) {
		t.Helper()
		r.says("# TYPE a_total counter\na_total " + value + "\n")
		s := find(&r.frame, "a_total")
		if got := values(&r.frame)["a_total"]; got != want || s.Start != start || s.Desc.Float != float {
			t.Errorf("%s is %v from %d on, float %v; want %v from %d on, float %v", value, got, s.Start, s.Desc.Float, want, start, float)
		}
	}
	counter("18446744073709551615", math.MaxUint64, 0, false)
	if r.frame.Values[0] != math.MaxUint64 {
		t.Error("the largest counter is rounded")
	}
	reset := r.wall + 1e9
	counter("5", 5, reset, false) // the endpoint was restarted
	counter("1e3", 1000, reset, false)
	counter("1000.5", 1000.5, reset, true) // from here on it has fractions
	counter("1001", 1001, reset, true)
	again := r.wall + 1e9
	counter("0", 0, again, true)
	counter("1", 1, again, true)
}

func TestAFailedScrapeChangesNothing(t *testing.T) {
	r := newReader(t, Endpoint{})
	r.says("# TYPE a counter\na 100\n")
	first := r.frame.Schema
	for _, body := range []string{"# TYPE a counter\na 1\nnew 2\n<html>\n", "a 1\nb"} {
		if err := r.scrapes(body); err == nil {
			t.Errorf("%q is accepted", body)
		}
	}
	r.says("# TYPE a counter\na 101\n")
	if r.frame.Schema != first || values(&r.frame)["a"] != 101 {
		t.Errorf("after failed scrapes: %v, start %d", values(&r.frame), r.frame.Schema.Series[0].Start)
	}
	if len(r.known) != 1 {
		t.Errorf("%d series are kept", len(r.known))
	}
}

func TestATypeThatChanges(t *testing.T) {
	r := newReader(t, Endpoint{})
	r.says("# TYPE a counter\na 100\n")
	r.says("# TYPE a gauge\na 50\n")
	if s := find(&r.frame, "a"); s.Desc.Kind != metric.Gauge || s.Start != 0 || values(&r.frame)["a"] != 50 {
		t.Errorf("%+v", s)
	}
	r.says("# TYPE a counter\na 60\n")
	r.says("# TYPE a counter\na 61\n")
	if s := find(&r.frame, "a"); s.Desc.Kind != metric.Counter || values(&r.frame)["a"] != 61 {
		t.Errorf("%+v", s)
	}
}

func TestNames(t *testing.T) {
	r := newReader(t, Endpoint{})
	r.says(`vllm:requests 1
JVM_Threads{Pool="x"} 2
__meta 3
cpu_usage 4
___ 5
a{endpoint="theirs"} 6
a{__x="1"} 7
b 8
B 9
{"my.name","k"="v"} 10
a{"my.key"="v"} 11
b 12
`)
	got := values(&r.frame)
	for id, want := range map[string]float64{"vllm_requests": 1, "jvm_threads Pool=x": 2, "meta": 3, "scraped_cpu_usage": 4,
		"a exported_endpoint=theirs": 6, "b": 8, "my_name k=v": 10} {
		if got[id] != want {
			t.Errorf("%s is %v, want %v", id, got[id], want)
		}
	}
	if want := [reasons]uint64{badName: 1, badLabel: 2, twice: 2}; r.drops != want {
		t.Errorf("dropped %v, want %v", r.drops, want)
	}
}

func TestLabelsOfOneMetricMayDiffer(t *testing.T) {
	r := newReader(t, Endpoint{})
	r.says("a{x=\"1\"} 1\na{y=\"2\"} 2\na 3\na{x=\"1\",y=\"2\"} 4\n")
	got := values(&r.frame)
	if len(got) != 4 || got["a x=1"] != 1 || got["a y=2"] != 2 || got["a"] != 3 || got["a x=1 y=2"] != 4 {
		t.Errorf("%v", got)
	}
}

func TestBoundOfSeries(t *testing.T) {
	r := newReader(t, Endpoint{MaxSeries: 5})
	body := func(from, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "a{i=\"%d\"} %d\n", from+i, i)
		}
		return b.String()
	}
	for range 3 {
		r.says(body(0, 17))
		if len(r.laid) != 5 || r.drops[overBound] != 12 {
			t.Fatalf("%d series, %d dropped; want 5 and 12", len(r.laid), r.drops[overBound])
		}
	}
	r.says(body(100, 17)) // all others
	if len(r.laid) != 5 || r.drops[overBound] != 12 || len(r.known) != 5 || len(r.written) != 5 {
		t.Errorf("%d series, %d dropped, %d known; want 5, 12, 5", len(r.laid), r.drops[overBound], len(r.known))
	}
}

func TestTextRefuses(t *testing.T) {
	r := newReader(t, Endpoint{})
	for _, body := range []string{"a 1", "a\n", "a \n", "a x\n", "a 0x1p3\n", "a 1_0\n", "a 1 2 3\n", "a 1 x\n", "9 1\n", "a{ 1\n", "a{b} 1\n",
		`a{b="} 1` + "\n", `a{b="1"c="2"} 1` + "\n", `a{b=1} 1` + "\n", "a{b=\"\xff\"} 1\n", "{} 1\n", `a{,} 1` + "\n", "<!DOCTYPE html>\n", "a{b=\"1\"}\n", "-a 1\n", "a-b 1\n",
		"a{b=\"1\"} 1\n\x00\n", "a{b:c=\"1\"} 1\n"} {
		if err := r.scrapes(body); err == nil {
			t.Errorf("%q is accepted: %v", body, values(&r.frame))
		}
	}
}

func big(n int) []byte {
	var b strings.Builder
	b.WriteString("# HELP requests_total requests\n# TYPE requests_total counter\n")
	for i := range n / 2 {
		fmt.Fprintf(&b, "requests_total{code=\"200\",path=\"/some/path/%d\"} %d\n", i, i*1009)
	}
	b.WriteString("# TYPE load gauge\n")
	for i := range n / 2 {
		fmt.Fprintf(&b, "load{code=\"200\",path=\"/some/path/%d\"} 0.%d\n", i, i)
	}
	return []byte(b.String())
}

func TestScrapeAllocatesNothing(t *testing.T) {
	r := newReader(t, Endpoint{})
	body := big(1000)
	scrape := func() {
		r.begin(1)
		if err := r.text.parse(body); err != nil {
			t.Fatal(err)
		}
		if err := r.finish(); err != nil {
			t.Fatal(err)
		}
		r.text.settle()
		r.write(&r.frame)
	}
	scrape()
	if n := testing.AllocsPerRun(10, scrape); n != 0 {
		t.Errorf("%v allocations in a scrape of the same series", n)
	}
}

// BenchmarkText is a scrape of 10,000 lines without the network.
func BenchmarkText(b *testing.B) {
	r := newReader(b, Endpoint{})
	body := big(10_000)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		r.begin(1)
		if err := r.text.parse(body); err != nil {
			b.Fatal(err)
		}
		if err := r.finish(); err != nil {
			b.Fatal(err)
		}
		r.text.settle()
		r.write(&r.frame)
	}
}

// BenchmarkTextFirst is the first scrape of 10,000 lines.
func BenchmarkTextFirst(b *testing.B) {
	body := string(big(10_000))
	for b.Loop() {
		newReader(b, Endpoint{}).says(body)
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte(exposition))
	f.Add([]byte("# TYPE foo counter\nfoo_total{a=\"b\"} 17.0 1520879607.789 # {trace_id=\"K\"} 0.67 1\n# EOF"))
	f.Add([]byte(`{"my.name","k"="v"} 10` + "\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := newReader(t, Endpoint{MaxSeries: 50})
		first := r.scrapes(string(body))
		one := r.frame.Schema
		// What is accepted once is accepted again, with the same series.
		second := r.scrapes(string(body))
		if (first == nil) != (second == nil) || first == nil && r.frame.Schema.Hash != one.Hash {
			t.Fatalf("%v, then %v", first, second)
		}
	})
}
