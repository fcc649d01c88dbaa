// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rezolus/internal/metric"
)

// plainFrame is a frame without the order of its series.
type plainFrame struct {
	Begin, End int64
	Lost       uint64
	Series     map[string]plainSeries
}

type plainSeries struct {
	Desc  metric.Desc
	Start int64
	Words []uint64
}

func plain(s *metric.Snapshot, windows bool) map[string]plainFrame {
	all := map[string]plainFrame{}
	for i := range s.Frames {
		f := &s.Frames[i]
		p := plainFrame{Lost: f.Lost, Series: map[string]plainSeries{}}
		if windows {
			p.Begin, p.End = f.Begin, f.End
		}
		for k := range f.Schema.Series {
			e := &f.Schema.Series[k]
			d := *e.Desc
			d.Keys = append([]string{}, d.Keys...)
			p.Series[Name(e.Desc, e.Values)] = plainSeries{d, e.Start, append([]uint64{}, f.Values[e.Off:e.Off+d.Words()]...)}
		}
		all[f.Schema.Source] = p
	}
	return all
}

func open(t testing.TB, b []byte) *Reader {
	t.Helper()
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return all(f)
}

// all reads all ticks of a file.
func all(f *File) *Reader { return f.Ticks(math.MinInt64, math.MaxInt64, nil) }

func TestRoundTripIsExact(t *testing.T) {
	ticks := manyTicks(t, 700)
	for _, o := range []Options{{}, {Form: Tidy}, {Windows: true, RowGroup: 100}, {Form: Tidy, Windows: true, RowGroup: 7}} {
		t.Run(fmt.Sprint(o.Form, o.Windows, o.RowGroup), func(t *testing.T) {
			b, done := write(t, o, ticks)
			if done.Ticks != uint64(len(ticks)) || done.Bytes != int64(len(b)) {
				t.Errorf("%+v written of %d ticks, %d bytes", done, len(ticks), len(b))
			}
			r := open(t, b)
			for i, want := range ticks {
				got, err := r.Next()
				if err != nil {
					t.Fatalf("tick %d: %v", i, err)
				}
				if *got.Run != *want.Run || got.Seq != want.Seq || got.Wall != want.Wall || got.Mono != want.Mono ||
					got.Interval != want.Interval || got.Missed != want.Missed {
					t.Fatalf("tick %d is %+v, want %+v", i, got, want)
				}
				if diff := cmp.Diff(plain(want, o.Windows), plain(got, o.Windows)); diff != "" {
					t.Fatalf("tick %d differs (-want +got):\n%s", i, diff)
				}
			}
			if _, err := r.Next(); !errors.Is(err, io.EOF) {
				t.Errorf("after the last tick: %v", err)
			}
			if report := r.Report(); len(report.Skipped)+int(report.Cells)+report.Renamed != 0 {
				t.Errorf("not all was read: %+v", report)
			}
		})
	}
}

// TestOneSourceTwiceInATickIsRefused: two frames cannot be one row.
func TestOneSourceTwiceInATickIsRefused(t *testing.T) {
	schema, err := metric.NewSchema("s", []metric.Series{{Desc: cores}})
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWriter(io.Discard, Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := metric.Frame{Schema: schema, Values: []uint64{1}}
	want := w.Put(&metric.Snapshot{Frames: []metric.Frame{f, f}})
	if want == nil {
		t.Fatal("it is written")
	}
	if _, err := w.Close(); !errors.Is(err, want) {
		t.Errorf("Close after an error: %v, want %v", err, want)
	}
}

// TestNamesOfTheTidyFormAreUnique: two sources may have the same series, and
// a metric may change its kind.
func TestNamesOfTheTidyFormAreUnique(t *testing.T) {
	counter := &metric.Desc{Name: "a", Kind: metric.Counter, Keys: []string{"k"}}
	gauge := &metric.Desc{Name: "a", Kind: metric.Gauge, Keys: []string{"k"}}
	var ticks []*metric.Snapshot
	for _, d := range []*metric.Desc{counter, gauge} {
		s := &metric.Snapshot{}
		for _, source := range []string{"one", "two"} {
			schema, err := metric.NewSchema(source, []metric.Series{{Desc: d, Values: []string{`v"`}}})
			if err != nil {
				t.Fatal(err)
			}
			s.Frames = append(s.Frames, metric.Frame{Schema: schema, Values: []uint64{uint64(len(s.Frames))}})
		}
		ticks = append(ticks, s)
	}
	b, _ := write(t, Options{Form: Tidy}, ticks)
	r := open(t, b)
	var names []string
	for _, c := range r.root.kids[2:] {
		names = append(names, c.name)
	}
	want := []string{`a{k="v\""}`, `a{k="v\""}#2`, `a{k="v\""}#3`, `a{k="v\""}#4`}
	if !slices.Equal(names, want) {
		t.Errorf("columns %q, want %q", names, want)
	}
	for i, want := range ticks {
		got, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(plain(want, false), plain(got, false)); diff != "" {
			t.Errorf("tick %d (-want +got):\n%s", i, diff)
		}
	}
}

// TestAFileWithoutTicks has its columns of times, and no rows.
func TestAFileWithoutTicks(t *testing.T) {
	b, done := write(t, Options{}, nil)
	if r := open(t, b); r.Rows() != 0 || done.Columns != 2 {
		t.Errorf("%d rows of %d columns", r.Rows(), done.Columns)
	} else if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("the first tick: %v", err)
	}
}
