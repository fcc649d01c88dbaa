// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pq "github.com/parquet-go/parquet-go"
)

// collect reads all ticks of a file as name -> values a tick, nil where the
// series is absent.
func collect(t *testing.T, r *Reader) (map[string][][]uint64, map[string][]int64) {
	t.Helper()
	words, starts := map[string][][]uint64{}, map[string][]int64{}
	for n := 0; ; n++ {
		s, err := r.Next()
		if errors.Is(err, io.EOF) {
			return words, starts
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.Frames {
			f := &s.Frames[i]
			for _, e := range f.Schema.Series {
				k := Name(e.Desc, e.Values)
				for len(words[k]) < n {
					words[k], starts[k] = append(words[k], nil), append(starts[k], 0)
				}
				words[k] = append(words[k], slices.Clone(f.Values[e.Off:e.Off+e.Desc.Words()]))
				starts[k] = append(starts[k], e.Start)
			}
		}
	}
}

// TestReadsTheRustImplementation reads testdata/metriken.parquet, which was
// written by metriken-exposition 0.19.0, the library with which the Rust
// implementation writes: 400 snapshots in row groups of 150; a counter, one
// that is there from the 100th to the 300th and begins anew at the 200th, a
// gauge, a histogram of power 3 with one value of k*k*1000 for each k up to
// the snapshot's number, and one of power 7 that ends at 2^40.
func TestReadsTheRustImplementation(t *testing.T) {
	b, err := os.ReadFile("testdata/metriken.parquet")
	if err != nil {
		t.Fatal(err)
	}
	r := open(t, b)
	if r.Rows() != 400 {
		t.Errorf("%d rows, want 400", r.Rows())
	}
	want := map[string]string{"source": "rezolus", "version": "5.17.1", "sampling_interval_ms": "1000",
		"descriptions": `{"cpu_usage":"time"}`}
	if diff := cmp.Diff(want, r.Metadata()); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	words, starts := collect(t, r)
	at := `{endpoint="http://localhost:4241",`
	zero, one := "cpu_usage"+at+`id="0",source="rezolus",state="user"}`, "cpu_usage"+at+`id="1",source="rezolus",state="user"}`
	cores := "cpu_cores" + at + `source="rezolus"}`
	hist3, hist7 := make([]uint64, 496), make([]uint64, 7424)
	if got, want := slices.Sorted(maps.Keys(words)), []string{cores, zero, one, "scheduler_runqueue_latency", "ttft"}; !slices.Equal(got, want) {
		t.Fatalf("series %q, want %q", got, want)
	}
	for i := range 400 {
		n := uint64(i)
		hist3[index(3, n*n*1000)]++
		hist7[index(7, 12345)] = n
		check := func(name string, want ...uint64) {
			if got := words[name][i]; !slices.Equal(got, want) {
				t.Fatalf("%s at %d is %v, want %v", name, i, got, want)
			}
		}
		check(zero, n*17)
		check(cores, -n)
		check("scheduler_runqueue_latency", hist3...)
		check("ttft", hist7...)
		switch {
		case i < 100:
			check(one)
		case i < 200:
			check(one, n)
		case i < 300:
			check(one, n-200)
			if want := int64(1_700_000_000e9 + 199e9 + 199); starts[one][i] != want {
				t.Fatalf("counts from %d at %d, want %d", starts[one][i], i, want)
			}
		}
	}
	if len(words[one]) != 300 {
		t.Errorf("%s is there until %d", one, len(words[one]))
	}
}

// index is the bucket of a value, from the definition: the exponent above
// the power, then the bits below the highest.
func index(power, v uint64) int {
	if v < 1<<(power+1) {
		return int(v)
	}
	e := uint64(0)
	for v>>e >= 2<<power {
		e++
	}
	return int(e<<power + v>>e)
}

// fixture makes a file as the reference describes those of the Rust
// implementation, by another library's writer: a row of any of the values
// for each row given.
type fixture struct {
	nodes map[string]pq.Node
	meta  map[string]map[string]string
	kv    map[string]string
	rows  []map[string]any
}

func (f *fixture) file(t testing.TB) []byte {
	t.Helper()
	schema := pq.NewSchema("arrow_schema", pq.Group(f.nodes))
	var out bytes.Buffer
	options := []pq.WriterOption{schema, pq.Compression(&pq.Zstd), pq.MaxRowsPerRowGroup(3)}
	var fields []arrowField
	for _, c := range schema.Fields() {
		fields = append(fields, arrowField{name: c.Name(), meta: f.meta[c.Name()]})
	}
	options = append(options, pq.KeyValueMetadata(arrowKey, encodeArrow(fields)))
	for k, v := range f.kv {
		options = append(options, pq.KeyValueMetadata(k, v))
	}
	w := pq.NewGenericWriter[any](&out, options...)
	for _, row := range f.rows {
		var values pq.Row
		for i, c := range schema.Fields() {
			values = append(values, cell(row[c.Name()], c, i)...)
		}
		if _, err := w.WriteRows([]pq.Row{values}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// cell is the value of one column in one row, with its levels.
func cell(v any, c pq.Field, column int) (all []pq.Value) {
	def := 0
	if c.Optional() {
		def = 1
	}
	words, ok := v.([]uint64)
	switch {
	case v == nil:
		return []pq.Value{pq.NullValue().Level(0, 0, column)}
	case !ok:
		return []pq.Value{pq.ValueOf(v).Level(0, def, column)}
	case len(words) == 0:
		return []pq.Value{pq.NullValue().Level(0, 1, column)}
	}
	for i, w := range words {
		all = append(all, pq.ValueOf(w).Level(min(i, 1), 3, column))
	}
	return all
}

var (
	u64  = pq.Uint(64)
	i64  = pq.Int(64)
	list = pq.Optional(pq.List(pq.Optional(pq.Uint(64))))
)

func dense(n int, at ...int) []uint64 {
	all := make([]uint64, n)
	for _, i := range at {
		all[i]++
	}
	return all
}

func oddFixture() *fixture {
	counter := func(pairs ...string) map[string]string {
		m := map[string]string{"metric": "task_cpu_usage", "metric_type": "counter", "unit": "nanoseconds"}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	f := &fixture{kv: map[string]string{"source": `["rezolus","llm"]`, "sampling_interval_ms": "100", "node": "web01",
		"systeminfo": `{"hostname":"h","kernel":"6.1.0","arch":"x86_64"}`, "events": `{"events":[{"timestamp":5,"description":"begin","kind":"marker"}]}`},
		nodes: map[string]pq.Node{
			"timestamp": u64, "duration": pq.Optional(u64),
			"57x12": pq.Optional(u64), "57x13": pq.Optional(u64), "web01::58": pq.Optional(u64), "57x14": pq.Optional(u64),
			"60": pq.Optional(i64), "61:buckets": list, "62:buckets": list, "63:buckets": list,
			"70": pq.Optional(pq.String()), "71": pq.Optional(pq.Leaf(pq.DoubleType)), "72": pq.Optional(u64),
			"61:window_begin": pq.Optional(i64), ":wall_offset": pq.Optional(i64),
		},
		meta: map[string]map[string]string{
			"timestamp": {"metric_type": "timestamp"}, "duration": {"metric_type": "duration"},
			"57x12": counter("id", "7", "sampler", "task_cpu_usage", "name", "a"),
			// A process id that was used again: the labels are those that were first seen.
			"57x13": counter("id", "7", "sampler", "task_cpu_usage", "name", "a"),
			// Of the same metric, with other labels.
			"57x14":      counter("id", "8", "sampler", "task_cpu_usage"),
			"web01::58":  {"metric": "vllm:num-Requests", "metric_type": "counter", "role.name": "x"},
			"60":         {"metric": "cpu_cores", "metric_type": "gauge"},
			"61:buckets": {"metric": "wait", "metric_type": "histogram", "grouping_power": "2", "max_value_power": "64"},
			"62:buckets": {"metric": "lost", "metric_type": "histogram"},
			"63:buckets": {"metric": "fine", "metric_type": "histogram", "grouping_power": "9", "max_value_power": "64"},
			"70":         {"metric": "text"}, "71": {"metric": "ratio", "metric_type": "counter"}, "72": nil,
		}}
	for i := range 7 {
		row := map[string]any{"timestamp": uint64(1e18 + i*1e8), "57x12": uint64(i), "57x13": uint64(100 + i),
			"57x14": uint64(200 + i), "web01::58": uint64(300 + i), "60": int64(-i), "61:buckets": dense(252, 3, 4)}
		switch i {
		case 2:
			row["61:buckets"] = dense(251, 3) // a bucket is missing
		case 3:
			delete(row, "61:buckets")
			delete(row, "57x12")
		case 4:
			row["61:buckets"] = []uint64{}
		case 5:
			row["61:buckets"] = dense(252, 3) // bucket 4 fell: counted anew
		}
		f.rows = append(f.rows, row)
	}
	return f
}

func TestReadsTheOddCases(t *testing.T) {
	r := open(t, oddFixture().file(t))
	words, starts := collect(t, r)
	column := func(first uint64, without ...int) (all [][]uint64) {
		for i := range uint64(7) {
			if slices.Contains(without, int(i)) {
				all = append(all, nil)
				continue
			}
			all = append(all, []uint64{first + i})
		}
		return all
	}
	minus := column(0)
	for i := range minus {
		minus[i][0] = -minus[i][0]
	}
	full, less := dense(252, 3, 4), dense(252, 3)
	want := map[string][][]uint64{
		`task_cpu_usage{id="7",name="a"}`:                column(0, 3),
		`task_cpu_usage{column="57x13",id="7",name="a"}`: column(100),
		`task_cpu_usage{id="8"}`:                         column(200),
		`vllm_num_requests{node="web01",role_name="x"}`:  column(300),
		`cpu_cores`: minus,
		`wait`:      {full, full, nil, nil, nil, less, full},
	}
	if diff := cmp.Diff(want, words); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	if got, want := starts["wait"], []int64{0, 0, 0, 0, 0, 1e18 + 4e8, 1e18 + 4e8}; !slices.Equal(got, want) {
		t.Errorf("the histogram counts from %v, want %v", got, want)
	}
	report := r.Report()
	var skipped []string
	for _, s := range report.Skipped {
		skipped = append(skipped, s.Column+": "+s.Reason)
	}
	slices.Sort(skipped)
	wantSkipped := []string{
		"61:window_begin: the time in which a value was read",
		"62:buckets: a histogram without a grouping power",
		"63:buckets: a histogram of grouping power 9; 2 to 7 are read",
		"70: neither numbers nor lists of them",
		"71: only gauges are read as floating-point numbers",
		"72: no metadata that says what it measures",
		":wall_offset: no metadata that says what it measures",
	}
	if diff := cmp.Diff(wantSkipped, skipped); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
	if report.Cells != 2 || report.Renamed != 1 {
		t.Errorf("%d bad cells and %d renamed, want 2 and 1", report.Cells, report.Renamed)
	}
	if diff := cmp.Diff([]Event{{5, "begin"}}, r.Events()); diff != "" {
		t.Errorf("events: %s", diff)
	}
	run := r.tick.Run
	if run.Host != "web01" || run.Kernel != "6.1.0" || run.Arch != "amd64" || r.tick.Interval != 1e8 || run.Started != 1e18 {
		t.Errorf("run %+v at an interval of %d", run, r.tick.Interval)
	}
}

func TestRefuses(t *testing.T) {
	good, _ := write(t, Options{RowGroup: 50}, manyTicks(t, 120))
	f := func(name string, b []byte, want error, say string) {
		t.Helper()
		file, err := Open(bytes.NewReader(b), int64(len(b)))
		if err == nil {
			for r := all(file); err == nil; {
				_, err = r.Next()
			}
		}
		if !errors.Is(err, want) || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: error %v, want %v that says %q", name, err, want, say)
		}
	}
	f("nothing", nil, ErrForeign, "too few")
	f("text", []byte("this is not a Parquet file"), ErrForeign, `begins with "this"`)
	f("cut", good[:len(good)/2], ErrDamaged, "cut short")
	f("no times", (&fixture{nodes: map[string]pq.Node{"x": u64}, rows: []map[string]any{{"x": uint64(1)}}}).file(t), ErrForeign, "times")
	flipped := slices.Clone(good)
	flipped[len(good)/3] ^= 4
	f("a flipped bit", flipped, ErrDamaged, "wrong checksum")
	footer := slices.Clone(good)
	size := int(binary.LittleEndian.Uint32(good[len(good)-8:]))
	for i := range 64 {
		footer[len(good)-8-size+i] = 0xff
	}
	f("a footer of ones", footer, ErrDamaged, "")
	large := slices.Clone(good)
	binary.LittleEndian.PutUint32(large[len(good)-8:], 1<<31)
	f("a footer larger than the file", large, ErrDamaged, "a footer of 2147483648 bytes")
	f("newer", bytes.Replace(good, []byte(`{"version":1,"form"`), []byte(`{"version":2,"form"`), 1), ErrUnsupported, "version 2")
	f("columns that are not there", bytes.Replace(good, []byte(`"columns":[[2,6]]`), []byte(`"columns":[[6,2]]`), 1), ErrDamaged, "columns 6 to 2")
}

func TestArrowSchemaOfAnything(t *testing.T) {
	meta := map[string]string{"a": "b", "": "", "long": strings.Repeat("x", 70000)}
	fields := []arrowField{{name: "", typ: histogram, meta: meta}, {name: "t", typ: instants, required: true}, {name: "f", typ: float64s, meta: meta}}
	text := encodeArrow(fields)
	for i, c := range decodeArrow(text) {
		if c.name != fields[i].name || !maps.Equal(c.meta, fields[i].meta) {
			t.Errorf("field %d is %q %d keys", i, c.name, len(c.meta))
		}
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 600; n++ { // every cut is refused or read in part
		decodeArrow(base64.StdEncoding.EncodeToString(raw[:n]))
	}
}
