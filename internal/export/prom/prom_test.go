// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

var (
	requests = &metric.Desc{Name: "requests", Help: `says "what" and \`, Kind: metric.Counter, Keys: []string{"path"}}
	ratio    = &metric.Desc{Name: "hit_ratio", Help: "hits", Kind: metric.Gauge, Float: true}
	level    = &metric.Desc{Name: "level", Help: "below zero too", Kind: metric.Gauge}
	latency  = &metric.Desc{Name: "latency", Help: "time", Unit: metric.Nanoseconds, Kind: metric.Histogram, Power: hist.Default, Keys: []string{"op"}}
)

// testingT is a test, a benchmark or a property.
type testingT interface {
	Helper()
	Fatal(...any)
}

func schema(t testingT, source string, series ...metric.Series) *metric.Schema {
	t.Helper()
	s, err := metric.NewSchema(source, series)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func snapshot(t testingT) *metric.Snapshot {
	a := schema(t, "a", metric.Series{Desc: requests, Values: []string{"/a\"\\\n"}}, metric.Series{Desc: ratio}, metric.Series{Desc: level},
		metric.Series{Desc: latency, Values: []string{"read"}})
	b := schema(t, "b", metric.Series{Desc: requests, Values: []string{"/b"}})
	values := make([]uint64, a.Words)
	values[0], values[1], values[2] = 23, math.Float64bits(0.25), math.MaxUint64
	for _, v := range []uint64{100, 255, 256, 1000, 1 << 40} {
		values[3+latency.Power.Index(v)]++
	}
	return &metric.Snapshot{Frames: []metric.Frame{{Schema: a, Values: values}, {Schema: b, Values: []uint64{101}}}}
}

func TestText(t *testing.T) {
	got := string(NewWriter().Append(nil, snapshot(t), Text))
	for _, want := range []string{
		"# HELP requests says \"what\" and \\\\\n# TYPE requests counter\nrequests{path=\"/a\\\"\\\\\\n\"} 23\nrequests{path=\"/b\"} 101\n",
		"# TYPE hit_ratio gauge\nhit_ratio 0.25\n", "level -1\n",
		"# HELP latency time, in nanoseconds\n# TYPE latency histogram\nlatency_bucket{op=\"read\",le=\"255.0\"} 2\n",
		"latency_bucket{op=\"read\",le=\"511.0\"} 3\n", "latency_bucket{op=\"read\",le=\"1023.0\"} 4\n",
		"latency_bucket{op=\"read\",le=\"6.8719476735e+10\"} 4\n", "latency_bucket{op=\"read\",le=\"+Inf\"} 5\n", "latency_count{op=\"read\"} 5\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no\n%s\nin\n%s", want, got)
		}
	}
	if strings.Contains(got, "_total") || strings.Contains(got, "EOF") {
		t.Error("OpenMetrics in the text format")
	}
}

func TestOpenMetrics(t *testing.T) {
	got := string(NewWriter().Append(nil, snapshot(t), OpenMetrics))
	for _, want := range []string{"# TYPE requests counter\nrequests_total{path=", `says \"what\"`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if !strings.HasSuffix(got, "\n# EOF\n") {
		t.Error("it does not end with # EOF")
	}
}

// TestCountersThatEndInTotal have one suffix, not two; their family has none.
func TestCountersThatEndInTotal(t *testing.T) {
	d := &metric.Desc{Name: "hits_total", Help: "hits", Kind: metric.Counter}
	s := &metric.Snapshot{Frames: []metric.Frame{{Schema: schema(t, "a", metric.Series{Desc: d}), Values: []uint64{1}}}}
	f := func(format Format, want string) {
		t.Helper()
		if got := string(NewWriter().Append(nil, s, format)); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	}
	f(Text, "# HELP hits_total hits\n# TYPE hits_total counter\nhits_total 1\n")
	f(OpenMetrics, "# HELP hits hits\n# TYPE hits counter\nhits_total 1\n# EOF\n")
}

// A scraper refuses all of a text in which a series comes twice or a family
// has two kinds.
func TestSourcesThatDisagree(t *testing.T) {
	other := &metric.Desc{Name: "requests", Kind: metric.Gauge}
	a := schema(t, "a", metric.Series{Desc: requests, Values: []string{"/a"}})
	b := schema(t, "b", metric.Series{Desc: requests, Values: []string{"/a"}}, metric.Series{Desc: requests, Values: []string{"/b"}})
	c := schema(t, "c", metric.Series{Desc: other})
	s := &metric.Snapshot{Frames: []metric.Frame{{Schema: a, Values: []uint64{1}}, {Schema: b, Values: []uint64{2, 3}}, {Schema: c, Values: []uint64{4}}}}
	want := "# HELP requests says \"what\" and \\\\\n# TYPE requests counter\nrequests{path=\"/a\"} 1\nrequests{path=\"/b\"} 3\n"
	if got := string(NewWriter().Append(nil, s, Text)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestTwoLivesAtOnce: the life that began last is the series; two lines of one
// would make a scraper refuse all.
func TestTwoLivesAtOnce(t *testing.T) {
	series := []metric.Series{{Desc: requests, Values: []string{"/a"}, Start: 5}, {Desc: requests, Values: []string{"/b"}, Start: 6},
		{Desc: requests, Values: []string{"/a"}, Start: 9}, {Desc: requests, Values: []string{"/b"}, Start: 4}}
	s := &metric.Snapshot{Frames: []metric.Frame{{Schema: schema(t, "a", series...), Values: []uint64{100, 7, 1, 70}}}}
	want := "# HELP requests says \"what\" and \\\\\n# TYPE requests counter\nrequests{path=\"/a\"} 1\nrequests{path=\"/b\"} 7\n"
	if got := string(NewWriter().Append(nil, s, Text)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestPromtoolAccepts has Prometheus's own checker read the text. What it says
// about these names is not wanted: they are the field's and the original's.
func TestPromtoolAccepts(t *testing.T) {
	promtool, err := filepath.Abs("../../../.cache/debs/usr/bin/promtool")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(promtool); err != nil {
		t.Fatalf("no promtool; scripts/prereqs.sh test brings it: %v", err)
	}
	runs := &metric.Desc{Name: "rezolus_bpf_run_count", Help: "runs", Kind: metric.Counter, Keys: []string{"sampler"}}
	s := snapshot(t)
	s.Frames = append(s.Frames, metric.Frame{Schema: schema(t, "c", metric.Series{Desc: runs, Values: []string{"x"}}), Values: []uint64{1}})
	accepted := []string{
		`requests counter metrics should have "_total" suffix`,
		`rezolus_bpf_run_count counter metrics should have "_total" suffix`,
		`rezolus_bpf_run_count non-histogram and non-summary metrics should not have "_count" suffix`,
	}
	cmd := exec.Command(promtool, "check", "metrics")
	cmd.Stdin = bytes.NewReader(NewWriter().Append(nil, s, Text))
	out, _ := cmd.CombinedOutput() // lint findings are an error to it
	for line := range strings.Lines(string(out)) {
		if !slices.Contains(accepted, strings.TrimSuffix(line, "\n")) {
			t.Errorf("promtool: %s", line)
		}
	}
	cmd = exec.Command(promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader("broken{\n")
	if cmd.Run() == nil {
		t.Error("promtool accepts anything")
	}
}

// TestAnythingIsWellFormed reads the families back by the rules of both
// formats: in one piece, each series once, buckets that only grow up to the
// count.
func TestAnythingIsWellFormed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &metric.Snapshot{}
		text := rapid.StringOf(rapid.RuneFrom([]rune("a\\\"\n,{} é")))
		for i := range rapid.IntRange(0, 4).Draw(t, "sources") {
			d := &metric.Desc{Name: rapid.SampledFrom([]string{"a", "b", "c_total"}).Draw(t, "name"), Help: text.Draw(t, "help"),
				Kind: metric.Kind(rapid.IntRange(1, 3).Draw(t, "kind")), Unit: rapid.SampledFrom([]metric.Unit{"", metric.Bytes}).Draw(t, "unit"),
				Keys: []string{"x", "y"}}
			if d.Kind == metric.Histogram {
				d.Power = hist.Power(rapid.IntRange(2, 7).Draw(t, "power"))
			}
			var series []metric.Series
			for range rapid.IntRange(0, 4).Draw(t, "series") {
				series = append(series, metric.Series{Desc: d, Values: []string{text.Draw(t, "x"), text.Draw(t, "y")}})
			}
			f := metric.Frame{Schema: schema(t, fmt.Sprint(i), series...)}
			f.Resize(f.Schema.Words)
			for range 10 {
				if len(f.Values) > 0 {
					f.Values[rapid.IntRange(0, len(f.Values)-1).Draw(t, "at")] = rapid.Uint64Max(1<<50).Draw(t, "value")
				}
			}
			s.Frames = append(s.Frames, f)
		}
		w := NewWriter()
		for _, format := range []Format{Text, OpenMetrics} {
			checkForm(t, string(w.Append(nil, s, format)), format)
		}
	})
}

func checkForm(t *rapid.T, text string, format Format) {
	if body, ended := strings.CutSuffix(text, "# EOF\n"); ended != (format == OpenMetrics) {
		t.Fatalf("%v ends with EOF: %v", format, ended)
	} else {
		text = body
	}
	families, samples := map[string]bool{}, map[string]bool{}
	family, kind, bucket := "", "", uint64(0)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			family, _, _ = strings.Cut(rest, " ")
			if families[family] {
				t.Fatalf("family %s is in two pieces:\n%s", family, text)
			}
			families[family] = true
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "+family+" "); ok {
			kind = rest
			continue
		}
		name, value := line[:strings.LastIndexByte(line, ' ')], line[strings.LastIndexByte(line, ' ')+1:]
		if samples[name] {
			t.Fatalf("%s comes twice:\n%s", name, text)
		}
		samples[name] = true
		bare, _, _ := strings.Cut(name, "{")
		suffixes := map[string][]string{"counter": {""}, "gauge": {""}, "histogram": {"_bucket", "_sum", "_count"}}[kind]
		if kind == "counter" && format == OpenMetrics {
			suffixes = []string{"_total"}
		}
		if suffix, ok := strings.CutPrefix(bare, family); !ok || !slices.Contains(suffixes, suffix) {
			t.Fatalf("a sample %s in the family %s, a %s:\n%s", bare, family, kind, text)
		}
		if kind != "histogram" || strings.HasSuffix(bare, "_sum") {
			continue
		}
		n, err := strconv.ParseUint(value, 10, 64)
		switch {
		case err != nil || n < bucket:
			t.Fatalf("%s is %s after %d", name, value, bucket)
		case strings.HasSuffix(bare, "_count"):
			if n != bucket {
				t.Fatalf("%s is %d, and its buckets have %d", name, n, bucket)
			}
			bucket = 0
		default:
			bucket = n
		}
	}
}

// many is a snapshot of 10,000 counters with two labels.
func many(t testingT) *metric.Snapshot {
	d := &metric.Desc{Name: "requests", Kind: metric.Counter, Keys: []string{"code", "path"}}
	var series []metric.Series
	for i := range 10_000 {
		series = append(series, metric.Series{Desc: d, Values: []string{fmt.Sprint(i % 100), fmt.Sprint("/", i)}})
	}
	s := schema(t, "a", series...)
	return &metric.Snapshot{Frames: []metric.Frame{{Schema: s, Values: make([]uint64, s.Words)}}}
}

func TestLabelsAreMadeOnceASchema(t *testing.T) {
	w, s := NewWriter(), many(t)
	buf := w.Append(nil, s, Text)
	if n := testing.AllocsPerRun(5, func() { buf = w.Append(buf[:0], s, Text) }); n != 0 {
		t.Errorf("%v allocations for 10,000 series that were written before", n)
	}
	labels := &w.labels[s.Frames[0].Schema][0]
	s.Frames = append(s.Frames, snapshot(t).Frames...) // a second source came
	w.Append(nil, s, Text)
	if &w.labels[s.Frames[0].Schema][0] != labels {
		t.Error("a source's labels are made again because another came")
	}
	w.Append(nil, snapshot(t), Text)
	if len(w.labels) != 2 || len(w.schemas) != 2 || len(w.lines) != 5 {
		t.Errorf("%d lines of %d schemas are kept, want the 5 of the 2 in the last snapshot", len(w.lines), len(w.labels))
	}
}

func BenchmarkAppend10000Counters(b *testing.B) {
	w, s := NewWriter(), many(b)
	buf := w.Append(nil, s, Text)
	for b.Loop() {
		buf = w.Append(buf[:0], s, Text)
	}
	b.SetBytes(int64(len(buf)))
}

// BenchmarkAppendAfterAChange is a scrape after a series was born elsewhere.
func BenchmarkAppendAfterAChange(b *testing.B) {
	w, s := NewWriter(), many(b)
	small := snapshot(b).Frames
	with := &metric.Snapshot{Frames: append(small, s.Frames...)}
	var buf []byte
	for i := 0; b.Loop(); i++ {
		buf = w.Append(buf[:0], []*metric.Snapshot{s, with}[i%2], Text)
	}
}
