// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"bytes"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pq "github.com/parquet-go/parquet-go"

	"rezolus/internal/metric"
)

// TestWhatIsHeldIsBounded writes more than a million cells and asserts what
// the Writer and the Reader hold at any time, counted in cells and bytes.
func TestWhatIsHeldIsBounded(t *testing.T) {
	const series, rows, group = 500, 2200, 300
	d := &metric.Desc{Name: "counter", Kind: metric.Counter, Keys: []string{"id"}}
	var all []metric.Series
	for i := range series {
		all = append(all, metric.Series{Desc: d, Values: []string{string(rune('a'+i%26)) + strings.Repeat("x", i/26)}})
	}
	schema, err := metric.NewSchema("many", all)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	w, err := NewWriter(&file, Options{RowGroup: group})
	if err != nil {
		t.Fatal(err)
	}
	s := &metric.Snapshot{Frames: []metric.Frame{{Schema: schema, Values: make([]uint64, series)}}}
	held := 0
	for i := range rows {
		s.Seq, s.Wall = uint64(i+1), int64(i)*1e9
		for k := range s.Frames[0].Values {
			s.Frames[0].Values[k] += uint64(i*k) % 1000
		}
		if err := w.Put(s); err != nil {
			t.Fatal(err)
		}
		now := 0
		for _, c := range w.columns {
			now += len(c.steps)
		}
		held = max(held, now)
	}
	done, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if cells := done.Ticks * series; cells < 1e6 || done.Groups != 8 {
		t.Fatalf("%d cells in %d row groups, want a million in 8", cells, done.Groups)
	}
	if held > 2*group*series {
		t.Errorf("held %d bytes of %d cells that change by less than 1,000", held, group*series)
	}
	r := open(t, file.Bytes())
	most := 0
	for {
		if _, err := r.Next(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		held := 0
		for _, in := range r.origins[0].columns {
			held += cap(in.held)
		}
		for i := range r.blocks {
			if n := cap(r.blocks[i].words); n > group {
				t.Fatalf("%d words of one column at once, a row group has %d rows", n, group)
			}
		}
		most = max(most, held)
	}
	if most > 2*group*series {
		t.Errorf("the reader held %d bytes of %d cells that change by less than 1,000", most, group*series)
	}
}

// TestRowGroupsAreShortWhereThereAreManyColumns: what bounds a row group is
// its cells, too.
func TestRowGroupsAreShortWhereThereAreManyColumns(t *testing.T) {
	w := &Writer{o: Options{RowGroup: groupRows}, columns: make([]*column, 10000), rows: 838}
	if w.full() {
		t.Error("838 rows of 10,000 columns are a full row group")
	}
	if w.rows++; !w.full() {
		t.Error("839 rows of 10,000 columns are no full row group")
	}
}

// TestColumnsThatComeLateTakeNothingBefore: a column that appears at the end
// takes no byte in the row groups before, and is null there.
func TestColumnsThatComeLateTakeNothingBefore(t *testing.T) {
	few, many := make([]metric.Series, 1), make([]metric.Series, 301)
	d := &metric.Desc{Name: "c", Kind: metric.Counter, Keys: []string{"id"}}
	for i := range many {
		many[i] = metric.Series{Desc: d, Values: []string{strings.Repeat("i", i)}}
	}
	copy(few, many)
	var ticks []*metric.Snapshot
	for i := range 1000 {
		series := few
		if i == 999 {
			series = many
		}
		schema, err := metric.NewSchema("s", slices.Clone(series))
		if err != nil {
			t.Fatal(err)
		}
		ticks = append(ticks, &metric.Snapshot{Wall: int64(i), Frames: []metric.Frame{{Schema: schema, Values: make([]uint64, schema.Words)}}})
	}
	b, _ := write(t, Options{RowGroup: 100}, ticks)
	f, err := pq.OpenFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	offsets := map[int64]bool{}
	for i, g := range f.Metadata().RowGroups {
		for _, c := range g.Columns[3:] {
			if i < 9 {
				offsets[c.MetaData.DataPageOffset] = true
			}
		}
	}
	if len(offsets) != 1 {
		t.Errorf("%d chunks of nulls, want the one they share", len(offsets))
	}
	words, _ := collect(t, open(t, b))
	if n := len(words[Name(d, many[300].Values)]); n != 1000 {
		t.Errorf("the last column is there until %d", n)
	}
	for _, v := range words[Name(d, many[300].Values)][:999] {
		if v != nil {
			t.Fatal("a column that came later has a value before")
		}
	}
}

// TestGoldenMetadata: the metadata is read by programs of others.
func TestGoldenMetadata(t *testing.T) {
	for _, form := range []Form{Wide, Tidy} {
		w := newWorld(t, 1)
		var file bytes.Buffer
		out, err := NewWriter(&file, Options{Form: form, Metadata: map[string]string{"instance": "i-7", "systeminfo": "{}"}})
		if err != nil {
			t.Fatal(err)
		}
		for range 45 {
			if err := out.Put(w.tick()); err != nil {
				t.Fatal(err)
			}
		}
		out.Event(Event{1_700_000_003e9, "deployed"})
		if _, err := out.Close(); err != nil {
			t.Fatal(err)
		}
		f, err := pq.OpenFile(bytes.NewReader(file.Bytes()), int64(file.Len()))
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		b.WriteString(f.Schema().String() + "\n")
		kv := map[string]string{}
		for _, e := range f.Metadata().KeyValueMetadata {
			kv[e.Key] = e.Value
		}
		for _, c := range decodeArrow(kv[arrowKey]) {
			b.WriteString("\n" + c.name + "\n")
			for _, k := range slices.Sorted(maps.Keys(c.meta)) {
				b.WriteString("  " + k + "=" + c.meta[k] + "\n")
			}
		}
		delete(kv, arrowKey)
		for _, k := range slices.Sorted(maps.Keys(kv)) {
			b.WriteString("\n" + k + ": " + kv[k] + "\n")
		}
		name := "testdata/" + string(form) + ".golden"
		if os.Getenv("UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), b.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", form, diff)
		}
	}
}

// FuzzReader: no bytes make the reader panic, and what it reads of a damaged
// file can be written again.
func FuzzReader(f *testing.F) {
	small := &metric.Desc{Name: "h", Kind: metric.Histogram, Power: 2}
	schema, err := metric.NewSchema("s", []metric.Series{{Desc: cores}, {Desc: small}, {Desc: load, Values: []string{"x"}}})
	if err != nil {
		f.Fatal(err)
	}
	var ticks []*metric.Snapshot
	for i := range 4 {
		words := make([]uint64, schema.Words)
		words[0], words[9] = uint64(i), uint64(i)
		ticks = append(ticks, &metric.Snapshot{Wall: int64(i), Frames: []metric.Frame{{Schema: schema, Values: words}}})
	}
	for _, o := range []Options{{RowGroup: 3}, {Form: Tidy, Windows: true}} {
		b, _ := write(f, o, ticks)
		f.Add(b)
	}
	f.Add(oddFixture().file(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		f, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		_, _ = f.Select(t.Context(), math.MinInt64, math.MaxInt64, func(*metric.Series) bool { return true })
		r := all(f)
		w, err := NewWriter(io.Discard, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			s, err := r.Next()
			if err != nil {
				return
			}
			if err := w.Put(s); err != nil {
				t.Fatal(err)
			}
		}
	})
}
