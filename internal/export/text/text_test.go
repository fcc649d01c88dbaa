// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rezolus/internal/metric"
)

var (
	usage   = &metric.Desc{Name: "cpu_usage", Unit: metric.Nanoseconds, Kind: metric.Counter, Keys: []string{"id", "state"}}
	free    = &metric.Desc{Name: "memory_free", Unit: metric.Bytes, Kind: metric.Gauge}
	load    = &metric.Desc{Name: "load", Kind: metric.Gauge, Float: true}
	latency = &metric.Desc{Name: "latency", Unit: metric.Nanoseconds, Kind: metric.Histogram, Power: 2}
)

func schema(t testing.TB, start int64, odd string) *metric.Schema {
	t.Helper()
	s, err := metric.NewSchema("host", []metric.Series{{Desc: usage, Values: []string{"0", odd}},
		{Desc: free}, {Desc: load}, {Desc: latency, Start: start}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ticks are three: in the second 10 values of 5 and one of 1000 were
// counted, in the third the histogram began anew.
func ticks(t testing.TB, odd string) []*metric.Snapshot {
	a, b := schema(t, 1, odd), schema(t, 2, odd)
	tick := func(n int64, s *metric.Schema, usage uint64, load float64, five, thousand uint64) *metric.Snapshot {
		f := metric.Frame{Schema: s, Values: make([]uint64, s.Words)}
		f.Values[0], f.Values[1], f.Values[2] = usage, uint64(-n), math.Float64bits(load)
		f.Values[3+5], f.Values[3+latency.Power.Index(1000)] = five, thousand
		return &metric.Snapshot{Wall: 1_700_000_000_000_000_000 + n, Frames: []metric.Frame{f}}
	}
	return []*metric.Snapshot{tick(0, a, math.MaxUint64, 0.25, 7, 0), tick(1, a, 9, math.Inf(1), 17, 1), tick(2, b, 9, math.NaN(), 3, 0)}
}

func write(t testing.TB, o Options, all []*metric.Snapshot) string {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if err := w.Put(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCSV(t *testing.T) {
	got := write(t, Options{}, ticks(t, "user")[:2])
	want := strings.ReplaceAll(`time,time_ns,metric,labels,kind,unit,value,count,buckets
2023-11-14T22:13:20.000000000Z,1700000000000000000,cpu_usage,"id=""0"",state=""user""",counter,nanoseconds,18446744073709551615,,
2023-11-14T22:13:20.000000000Z,1700000000000000000,memory_free,,gauge,bytes,0,,
2023-11-14T22:13:20.000000000Z,1700000000000000000,load,,gauge,,0.25,,
2023-11-14T22:13:20.000000000Z,1700000000000000000,latency,,histogram,nanoseconds,,7,5..5:7
2023-11-14T22:13:20.000000001Z,1700000000000000001,cpu_usage,"id=""0"",state=""user""",counter,nanoseconds,9,,
2023-11-14T22:13:20.000000001Z,1700000000000000001,memory_free,,gauge,bytes,-1,,
2023-11-14T22:13:20.000000001Z,1700000000000000001,load,,gauge,,+Inf,,
2023-11-14T22:13:20.000000001Z,1700000000000000001,latency,,histogram,nanoseconds,,18,5..5:17 896..1023:1
`, "\n", "\r\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestQuantilesAreOfWhatWasCountedSince(t *testing.T) {
	only := func(e *metric.Series) bool { return e.Desc == latency }
	got := write(t, Options{Want: only, Quantiles: []float64{0.5, 1}}, ticks(t, ""))
	want := strings.ReplaceAll(`time,time_ns,metric,labels,kind,unit,value,count,q0.5,q1
2023-11-14T22:13:20.000000000Z,1700000000000000000,latency,,histogram,nanoseconds,,,,
2023-11-14T22:13:20.000000001Z,1700000000000000001,latency,,histogram,nanoseconds,,11,5,1023
2023-11-14T22:13:20.000000002Z,1700000000000000002,latency,,histogram,nanoseconds,,,,
`, "\n", "\r\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got = write(t, Options{Format: JSONLines, Want: only, Quantiles: []float64{0.5, 1}}, ticks(t, "")[1:])
	if strings.Contains(got, "quantiles") || strings.Count(got, "\n") != 2 {
		t.Errorf("histograms with nothing before have quantiles:\n%s", got)
	}
}

// TestTwoLivesAtOnce: each has a row, the one that began first before the
// other, and each its own quantiles.
func TestTwoLivesAtOnce(t *testing.T) {
	one := &metric.Desc{Name: "a", Kind: metric.Counter, Keys: []string{"name"}}
	series := func(starts ...int64) *metric.Schema {
		var all []metric.Series
		for _, at := range starts {
			all = append(all, metric.Series{Desc: one, Values: []string{"/x"}, Start: at}, metric.Series{Desc: latency, Start: at})
		}
		s, err := metric.NewSchema("s", all)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	tick := func(wall int64, s *metric.Schema, words ...uint64) *metric.Snapshot {
		f := metric.Frame{Schema: s, Values: make([]uint64, s.Words)}
		for i, w := range words {
			f.Values[s.Series[2*i].Off], f.Values[s.Series[2*i+1].Off+1] = w, w
		}
		return &metric.Snapshot{Wall: wall, Frames: []metric.Frame{f}}
	}
	got := write(t, Options{Quantiles: []float64{1}}, []*metric.Snapshot{
		tick(0, series(8, 5), 2, 100), tick(1, series(8, 5), 4, 101), tick(2, series(8), 5)})
	var rows []string
	for row := range strings.SplitSeq(got, "\r\n") {
		if _, rest, ok := strings.Cut(row, "Z,"); ok {
			rows = append(rows, rest)
		}
	}
	want := []string{`0,a,"name=""/x""",counter,,100,,`, `0,latency,,histogram,nanoseconds,,,`, `0,a,"name=""/x""",counter,,2,,`, `0,latency,,histogram,nanoseconds,,,`,
		`1,a,"name=""/x""",counter,,101,,`, `1,latency,,histogram,nanoseconds,,1,1`, `1,a,"name=""/x""",counter,,4,,`, `1,latency,,histogram,nanoseconds,,2,1`,
		`2,a,"name=""/x""",counter,,5,,`, `2,latency,,histogram,nanoseconds,,1,1`}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestJSONLines(t *testing.T) {
	lines := strings.SplitAfter(write(t, Options{Format: JSONLines}, ticks(t, "a\"b\n")), "\n")
	f := func(i int, want string) {
		t.Helper()
		if lines[i] != want+"\n" {
			t.Errorf("line %d is\n%swant\n%s", i, lines[i], want)
		}
		if !json.Valid([]byte(lines[i])) {
			t.Errorf("line %d is no JSON: %s", i, lines[i])
		}
	}
	f(0, `{"time":"2023-11-14T22:13:20.000000000Z","time_ns":1700000000000000000,"metric":"cpu_usage","labels":{"id":"0","state":"a\"b\n"},"kind":"counter","unit":"nanoseconds","value":18446744073709551615}`)
	f(6, `{"time":"2023-11-14T22:13:20.000000001Z","time_ns":1700000000000000001,"metric":"load","labels":{},"kind":"gauge","unit":"","value":"+Inf"}`)
	f(7, `{"time":"2023-11-14T22:13:20.000000001Z","time_ns":1700000000000000001,"metric":"latency","labels":{},"kind":"histogram","unit":"nanoseconds","count":18,"buckets":[[5,5,17],[896,1023,1]]}`)
	two := write(t, Options{Format: JSONLines, Quantiles: []float64{0.5, 0.99}}, ticks(t, ""))
	if !strings.Contains(two, `"count":11,"quantiles":{"0.5":5,"0.99":1023}}`) {
		t.Errorf("no quantiles in\n%s", two)
	}
}

// TestEveryRowHasEveryColumn reads with another's parser what has labels of
// any bytes.
func TestEveryRowHasEveryColumn(t *testing.T) {
	const odd = "a,\"b\"\r\nc\\d"
	for _, q := range [][]float64{nil, {0.5}, {0, 0.9, 1}} {
		r := csv.NewReader(strings.NewReader(write(t, Options{Quantiles: q}, ticks(t, odd))))
		rows, err := r.ReadAll() // all rows must be as long as the first
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) != 13 || rows[1][3] != `id="0",state="a,\"b\"\r\nc\\d"` {
			t.Errorf("%d rows, labels %s", len(rows), rows[1][3])
		}
	}
}

func TestRefusesQuantiles(t *testing.T) {
	for _, q := range [][]float64{{-1}, {1.1}, {math.NaN()}, {0.9, 0.5}, {0.5, 0.5}} {
		if _, err := NewWriter(io.Discard, Options{Quantiles: q}); err == nil {
			t.Errorf("quantiles %v are accepted", q)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestSaysThatItCouldNotWrite(t *testing.T) {
	w, err := NewWriter(full{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range ticks(t, "") {
		if err := w.Put(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("error %v", err)
	}
}

func BenchmarkPut(b *testing.B) {
	for name, o := range map[string]Options{"csv": {}, "json": {Format: JSONLines}, "quantiles": {Quantiles: []float64{0.5, 0.99}}} {
		b.Run(name, func(b *testing.B) {
			w, err := NewWriter(io.Discard, o)
			if err != nil {
				b.Fatal(err)
			}
			all := ticks(b, "user")[:2]
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := w.Put(all[i%2]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(w.Rows()), "ns/row")
		})
	}
}
