// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

var (
	requests = &metric.Desc{Name: "requests", Help: `says "what" and \`, Kind: metric.Counter, Keys: []string{"path"}}
	ratio    = &metric.Desc{Name: "hit_ratio", Help: "hits", Kind: metric.Gauge, Float: true}
	level    = &metric.Desc{Name: "level", Help: "below zero too", Kind: metric.Gauge}
	latency  = &metric.Desc{Name: "latency", Help: "time", Unit: metric.Nanoseconds, Kind: metric.Histogram, Power: hist.Default, Keys: []string{"op"}}
)

func schema(t testing.TB, source string, series ...metric.Series) *metric.Schema {
	t.Helper()
	s, err := metric.NewSchema(source, series)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func snapshot(t testing.TB) *metric.Snapshot {
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
	got := string(NewWriter().Write(snapshot(t), Text))
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
	got := string(NewWriter().Write(snapshot(t), OpenMetrics))
	for _, want := range []string{"# TYPE requests counter\nrequests_total{path=", `says \"what\"`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if !strings.HasSuffix(got, "\n# EOF\n") {
		t.Error("it does not end with # EOF")
	}
}

func TestNegotiate(t *testing.T) {
	f := func(accept string, want Format) {
		t.Helper()
		if got := Negotiate(accept); got != want {
			t.Errorf("Accept %q gives %v, want %v", accept, got, want)
		}
	}
	f("", Text)
	f("*/*", Text)
	f("application/openmetrics-text", OpenMetrics)
	f("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2", OpenMetrics)
	f("application/openmetrics-text;q=0.2,text/plain;q=0.9", Text)
	f("application/vnd.google.protobuf;q=1,text/plain;q=0.4", Text)
}

// TestPromtoolAccepts has Prometheus's own checker read the text. What it says
// about names is not wanted: they are the field's and the original's.
func TestPromtoolAccepts(t *testing.T) {
	promtool, err := filepath.Abs("../../../.cache/debs/usr/bin/promtool")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(promtool); err != nil {
		t.Fatalf("no promtool; scripts/prereqs.sh test brings it: %v", err)
	}
	cmd := exec.Command(promtool, "check", "metrics")
	cmd.Stdin = bytes.NewReader(NewWriter().Write(snapshot(t), Text))
	out, _ := cmd.CombinedOutput() // lint findings are an error to it
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, `counter metrics should have "_total" suffix`) {
			t.Errorf("promtool: %s", line)
		}
	}
}

func TestHandler(t *testing.T) {
	s := snapshot(t)
	server := httptest.NewServer(Handler(func(context.Context) (*metric.Snapshot, error) { return s, nil }))
	defer server.Close()
	request, err := http.NewRequest("GET", server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept-Encoding", "gzip")
	request.Header.Set("Accept", "application/openmetrics-text")
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	plain, err := gzip.NewReader(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(plain)
	if err != nil || !strings.HasSuffix(string(text), "# EOF\n") || response.Header.Get("Content-Type") != OpenMetrics.ContentType() {
		t.Errorf("%v, %s: %q", err, response.Header.Get("Content-Type"), text)
	}
}

// many is a snapshot of 10,000 counters with two labels.
func many(t testing.TB) *metric.Snapshot {
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
	w.Write(s, Text)
	if n := testing.AllocsPerRun(5, func() { w.Write(s, Text) }); n != 0 {
		t.Errorf("%v allocations for 10,000 series that were written before", n)
	}
	w.Write(snapshot(t), Text)
	if len(w.schemas) != 2 || len(w.lines) != 5 {
		t.Errorf("%d lines of %d schemas are kept, want the 5 of the 2 in the last snapshot", len(w.lines), len(w.schemas))
	}
}

func BenchmarkWrite10000Counters(b *testing.B) {
	w, s := NewWriter(), many(b)
	for b.Loop() {
		w.Write(s, Text)
	}
}
