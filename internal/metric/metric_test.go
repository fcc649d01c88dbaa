// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"rezolus/internal/hist"
)

var (
	switches = &Desc{Name: "scheduler_context_switch", Help: "context switches", Kind: Counter,
		Keys: []string{"id", "kind"}, Sampler: "scheduler_runqueue"}
	latency = &Desc{Name: "scheduler_runqueue_latency", Help: "time a runnable task waited for a CPU",
		Kind: Histogram, Unit: Nanoseconds, Power: hist.Default, Sampler: "scheduler_runqueue"}
	load = &Desc{Name: "load", Kind: Gauge, Float: true}
)

func testSeries() []Series {
	return []Series{
		{Desc: switches, Values: []string{"0", "voluntary"}, Start: 1700000000123456789},
		{Desc: latency, Start: 1700000000123456789},
		{Desc: switches, Values: []string{"1", "voluntary"}, Start: 1600000000000000000},
		{Desc: load, Start: 0},
	}
}

func mustSchema(t testing.TB, source string, series []Series) *Schema {
	t.Helper()
	s, err := NewSchema(source, series)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSchemaLayout(t *testing.T) {
	s := mustSchema(t, "task", testSeries())
	var offs []int
	for _, e := range s.Series {
		offs = append(offs, e.Off)
	}
	if want := []int{0, 1, 497, 498}; !slices.Equal(offs, want) || s.Words != 499 {
		t.Errorf("offsets %v of %d words, want %v of 499", offs, s.Words, want)
	}
	if v, ok := s.Series[2].Label("id"); v != "1" || !ok {
		t.Errorf("label id is %q, %v", v, ok)
	}
	if _, ok := s.Series[1].Label("id"); ok {
		t.Error("a series without labels has label id")
	}
}

func TestSchemaRoundTrip(t *testing.T) {
	s := mustSchema(t, "task", testSeries())
	got, err := ParseSchema(s.AppendBinary(nil))
	if err != nil {
		t.Fatal(err)
	}
	// An empty key list and a missing one are the same.
	if diff := cmp.Diff(s, got, cmp.Comparer(slices.Equal[[]string])); diff != "" {
		t.Errorf("decoded schema differs (-want +got):\n%s", diff)
	}
}

func TestSchemaHashIsItsContent(t *testing.T) {
	a := mustSchema(t, "task", testSeries())
	if b := mustSchema(t, "task", testSeries()); a.Hash != b.Hash {
		t.Error("equal schemas have different hashes")
	}
	later := testSeries()
	later[0].Start++ // a restarted counter
	if b := mustSchema(t, "task", later); a.Hash == b.Hash {
		t.Error("a new start does not change the hash")
	}
	if b := mustSchema(t, "task2", testSeries()); a.Hash == b.Hash {
		t.Error("another source does not change the hash")
	}
}

func TestSchemaRefuses(t *testing.T) {
	f := func(want string, d Desc, values ...string) {
		t.Helper()
		_, err := NewSchema("x", []Series{{Desc: &d, Values: values}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one that says %q", d, err, want)
		}
	}
	f("name", Desc{Name: "Bad", Kind: Counter})
	f("kind", Desc{Name: "a"})
	f("kind", Desc{Name: "a", Kind: 9})
	f("power", Desc{Name: "a", Kind: Histogram})
	f("power", Desc{Name: "a", Kind: Counter, Power: 3})
	f("float", Desc{Name: "a", Kind: Counter, Float: true})
	f("sorted", Desc{Name: "a", Kind: Counter, Keys: []string{"b", "a"}}, "1", "2")
	f("twice", Desc{Name: "a", Kind: Counter, Keys: []string{"a", "a"}}, "1", "2")
	f("label key", Desc{Name: "a", Kind: Counter, Keys: []string{"a-b"}}, "1")
	f("label values", Desc{Name: "a", Kind: Counter, Keys: []string{"a"}})
	if _, err := NewSchema("x", []Series{{Desc: &Desc{Name: "a", Kind: Counter}}, {Desc: &Desc{Name: "a", Kind: Gauge}}}); err == nil {
		t.Error("one name with two descriptions is accepted")
	}
	if _, err := NewSchema("", nil); err == nil {
		t.Error("a schema without source is accepted")
	}
}

func TestParseSchemaRefusesEveryPrefix(t *testing.T) {
	b := mustSchema(t, "task", testSeries()).AppendBinary(nil)
	for n := range b {
		if _, err := ParseSchema(b[:n]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("the first %d of %d bytes: error %v, want ErrCorrupt", n, len(b), err)
		}
	}
	if _, err := ParseSchema(append(b, 0)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a byte too many: error %v, want ErrCorrupt", err)
	}
}

func FuzzParseSchema(f *testing.F) {
	f.Add(mustSchema(f, "task", testSeries()).AppendBinary(nil))
	f.Add(mustSchema(f, "scrape", []Series{{Desc: sizes(), Values: []string{"read"}}}).AppendBinary(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseSchema(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error %v is not ErrCorrupt", err)
			}
			return
		}
		again, err := ParseSchema(s.AppendBinary(nil))
		if err != nil || again.Hash != s.Hash {
			t.Fatalf("what was decoded encodes to something else: %v", err)
		}
	})
}

func TestValue(t *testing.T) {
	f := func(d Desc, word uint64, want float64) {
		t.Helper()
		if got := d.Value(word); got != want {
			t.Errorf("%s %v %d is %v, want %v", d.Kind, d.Float, word, got, want)
		}
	}
	f(Desc{Kind: Counter}, math.MaxUint64, math.MaxUint64)
	f(Desc{Kind: Gauge}, math.MaxUint64, -1)
	f(Desc{Kind: Gauge, Float: true}, math.Float64bits(0.25), 0.25)
}

func TestSnapshotCopySharesNothingAndAllocatesNothing(t *testing.T) {
	s := mustSchema(t, "task", testSeries())
	var from, to Snapshot
	for i := range from.Grow(2) {
		from.Frames[i] = Frame{Schema: s, Begin: 1, End: 2, Lost: 3}
		from.Frames[i].Resize(s.Words)
		from.Frames[i].Values[7] = uint64(i)
	}
	from.Seq, from.Wall = 5, 6
	to.CopyFrom(&from)
	if diff := cmp.Diff(from, to, cmp.Comparer(func(a, b *Schema) bool { return a == b })); diff != "" {
		t.Fatalf("copy differs:\n%s", diff)
	}
	from.Frames[1].Values[7] = 99
	if to.Frames[1].Values[7] != 1 {
		t.Error("the copy shares values")
	}
	one := Snapshot{Frames: from.Frames[:1]}
	if n := testing.AllocsPerRun(10, func() { to.CopyFrom(&one); to.CopyFrom(&from) }); n != 0 {
		t.Errorf("%v allocations in a copy into used memory", n)
	}
}

// TestStampedCopies changes a frame and copies it into others, each of which
// was copied last some changes ago.
func TestStampedCopies(t *testing.T) {
	const words = 5*Block + 7
	schemas := []*Schema{{Source: "a", Words: words}, {Source: "a", Words: words}}
	rapid.Check(t, func(t *rapid.T) {
		from := Frame{Schema: schemas[0], Stamps: make([]uint64, Blocks(words))}
		from.Resize(words)
		var copies [3]Frame
		for now := uint64(1); now < 40; now++ {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				from.Schema = schemas[rapid.IntRange(0, 1).Draw(t, "schema")]
				for i := range from.Values {
					from.Values[i] += now
					from.Stamps[i/Block] = now
				}
			case 1:
				at := rapid.IntRange(0, words-1).Draw(t, "unsure")
				from.Values[at]++
				from.Stamps[at/Block] = 0
			default:
				at := rapid.IntRange(0, words-1).Draw(t, "at")
				from.Values[at]++
				from.Stamps[at/Block] = now
			}
			to := &copies[rapid.IntRange(0, 2).Draw(t, "to")]
			to.CopyFrom(&from)
			if to.Schema != from.Schema || !slices.Equal(to.Values, from.Values) || !slices.Equal(to.Stamps, from.Stamps) {
				t.Fatalf("the copy of change %d is another", now)
			}
		}
	})
}

func TestStampedCopiesTouchOnlyWhatChanged(t *testing.T) {
	s := &Schema{Source: "a", Words: 3 * Block}
	from := Frame{Schema: s, Values: make([]uint64, s.Words), Stamps: []uint64{1, 1, 1}}
	var to Frame
	to.CopyFrom(&from)
	for i := range from.Values {
		from.Values[i] = 5
	}
	from.Stamps[1] = 2
	to.CopyFrom(&from)
	for i, want := range map[int]uint64{0: 0, Block - 1: 0, Block: 5, 2*Block - 1: 5, 2 * Block: 0} {
		if to.Values[i] != want {
			t.Errorf("word %d is %d, want %d", i, to.Values[i], want)
		}
	}
}
