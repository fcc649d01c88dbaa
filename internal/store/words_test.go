// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rezolus/internal/metric"
)

// stepsOf are the steps of plain values.
func stepsOf(values []uint64) (s steps) {
	s.n = len(values) - 1
	for i := range s.n {
		if d := values[i+1] - values[i]; d != 0 {
			s.at, s.by = append(s.at, uint16(i)), append(s.by, d)
		}
	}
	return s
}

var (
	anyWord  = rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(0, 300), rapid.Uint64())
	anyFloat = rapid.OneOf(rapid.Float64(), rapid.Map(rapid.IntRange(-100000, 100000), func(i int) float64 { return float64(i) / 100 }))
)

// anyValues are values of every temper: constant, rare, steady, wild.
func anyValues(t *rapid.T) []uint64 {
	n := rapid.IntRange(1, 300).Draw(t, "n")
	values := make([]uint64, n)
	v := anyWord.Draw(t, "first")
	rare := rapid.IntRange(1, 20).Draw(t, "rare")
	unit := rapid.OneOf(rapid.Just(uint64(1)), rapid.Just(uint64(10_000_000)), rapid.Uint64()).Draw(t, "unit")
	size := rapid.IntRange(0, 63).Draw(t, "size")
	down := rapid.Bool().Draw(t, "down")
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	for i := range values {
		if i > 0 && r.IntN(rare) == 0 {
			d := (r.Uint64() >> size) * unit
			if down && r.IntN(2) == 0 {
				d = -d
			}
			v += d
		}
		values[i] = v
	}
	return values
}

func TestWordsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &metric.Desc{Kind: metric.Gauge, Float: true}
		var values []uint64
		if rapid.Bool().Draw(t, "float") {
			for _, v := range rapid.SliceOfN(anyFloat, 1, 100).Draw(t, "values") {
				values = append(values, math.Float64bits(v))
			}
		} else {
			d.Kind, d.Float = rapid.SampledFrom([]metric.Kind{metric.Counter, metric.Gauge}).Draw(t, "kind"), false
			values = anyValues(t)
		}
		s := stepsOf(values)
		b := appendWord([]byte{9}, d, values[0], &s)
		got, err := readWord(b[1:], len(values), []uint64{7})
		if err != nil || got[0] != 7 || !slices.Equal(got[1:], values) {
			t.Fatalf("%v becomes %v: %v", values, got, err)
		}
	})
}

func TestEveryFormComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := anyValues(t)
		s := stepsOf(values)
		if len(s.at) == 0 {
			return
		}
		g, unsigned := s.factor(), s.unsigned()
		for form := formSparse; form < forms; form++ {
			var w bitWriter
			c, run, step := startOf(&s, g)
			dry := c
			c.write(&w, form, &s, g, unsigned)
			b := w.finish()
			if _, size := dry.best(&s, g, unsigned, form); int(size+7)/8 != len(b) {
				t.Fatalf("form %d takes %d bytes, reckoned %d bits", form, len(b), size)
			}
			got := []uint64{values[0]}
			r, state := bitReader{b: b}, startAt(run, step)
			state.read(&r, form, s.n, unsigned, func(i int, d uint64) {
				for len(got) <= i {
					got = append(got, got[len(got)-1])
				}
				got = append(got, got[i]+d*g)
			})
			for len(got) < len(values) {
				got = append(got, got[len(got)-1])
			}
			if r.bad || !slices.Equal(got, values) {
				t.Fatalf("form %d: %v becomes %v", form, values, got)
			}
		}
	})
}

func TestBucketsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 50).Draw(t, "n")
		columns := make([][]uint64, 60)
		first := make([]uint64, len(columns))
		for i := range columns {
			columns[i] = make([]uint64, n)
		}
		for range rapid.IntRange(0, 8).Draw(t, "used") {
			i := rapid.IntRange(0, len(columns)-1).Draw(t, "bucket")
			v := anyWord.Draw(t, "first")
			for j := range columns[i] {
				columns[i][j] = v
				v += anyWord.Draw(t, "step")
			}
			first[i] = columns[i][0]
		}
		b := appendBuckets(nil, first, func(i int) steps { return stepsOf(columns[i]) })
		got := make([][]uint64, len(columns))
		for i := range got {
			got[i] = make([]uint64, n)
		}
		err := readBuckets(b, len(columns), n, func(index, i int, d uint64) {
			for ; i < n; i++ {
				got[index][i] += d
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if !slices.Equal(got[i], columns[i]) {
				t.Fatalf("bucket %d: %v becomes %v", i, columns[i], got[i])
			}
		}
	})
}

// TestColumnsAreSmall says what a column costs whose information is known.
func TestColumnsAreSmall(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	f := func(name string, most int, kind metric.Kind, next func(i int, v uint64) uint64) {
		t.Helper()
		values := make([]uint64, 1001)
		values[0] = 1 << 40
		for i := range 1000 {
			values[i+1] = next(i, values[i])
		}
		s := stepsOf(values)
		if n := len(appendWord(nil, &metric.Desc{Kind: kind}, values[0], &s)); n > most {
			t.Errorf("%s: %d bytes for 1000 steps, want at most %d", name, n, most)
		}
	}
	f("constant", 8, metric.Counter, func(_ int, v uint64) uint64 { return v })
	f("one step", 14, metric.Counter, func(i int, v uint64) uint64 { return v + uint64(i/999) })
	f("steady", 145, metric.Counter, func(_ int, v uint64) uint64 { return v + 1_000_000 })
	f("steady, 5 bits of noise", 870, metric.Counter, func(_ int, v uint64) uint64 { return v + 1_000_000 + r.Uint64N(32) })
	f("jiffies", 270, metric.Counter, func(_ int, v uint64) uint64 { return v + 10_000_000*(99+r.Uint64N(2)) })
	f("a step in a hundred", 30, metric.Counter, func(i int, v uint64) uint64 { return v + uint64(i%100/99) })
	f("a level with 8 bits of noise", 1180, metric.Gauge, func(int, uint64) uint64 { return 1<<40 + r.Uint64N(256) })
}

func FuzzColumn(f *testing.F) {
	f.Add([]byte{0, 5}, uint16(3), false)
	f.Add([]byte{2, 5, 1, 1, 0xff, 0xff, 3}, uint16(30), false)
	f.Add([]byte{1, 3, 9, 0xff, 0xff, 3}, uint16(30), true)
	f.Add(append([]byte{0xf1, 3}, treeColumn([][]uint64{{1, 0, 5}, {0, 2, 900}, {3, 3, 3}}, false)[1:]...), uint16(4), true)
	f.Fuzz(func(t *testing.T, b []byte, n uint16, hist bool) {
		var err error
		if hist {
			err = readBuckets(b, 496, int(n), func(index, i int, _ uint64) {
				if index >= 496 || i >= max(1, int(n)) {
					t.Fatalf("bucket %d, value %d of %d", index, i, n)
				}
			})
		} else {
			var got []uint64
			if got, err = readWord(b, int(n), nil); len(got) > int(n) {
				t.Fatalf("%d values of %d", len(got), n)
			}
		}
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatalf("error %v is not ErrCorrupt", err)
		}
	})
}
