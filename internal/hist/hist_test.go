// SPDX-License-Identifier: Apache-2.0

package hist

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// bounds is the layout by its definition, built bucket by bucket: one value
// a bucket below 2^(p+1), then 2^p equal buckets an octave up to 2^64-1.
func bruteBounds(p Power) (lo, hi []uint64) {
	for v := uint64(0); v < 2<<p; v++ {
		lo, hi = append(lo, v), append(hi, v)
	}
	for octave := int(p) + 1; octave < 64; octave++ {
		width := uint64(1) << (octave - int(p))
		start := uint64(1) << octave
		for i := range uint64(1) << p {
			lo, hi = append(lo, start+i*width), append(hi, start+i*width+width-1)
		}
	}
	return lo, hi
}

func eachPower(t *testing.T, f func(t *testing.T, p Power)) {
	for p := MinPower; p <= MaxPower; p++ {
		t.Run(string('0'+rune(p)), func(t *testing.T) { f(t, p) })
	}
}

func TestBuckets(t *testing.T) {
	for i, want := range []int{252, 496, 976, 1920, 3776, 7424} {
		if got := (MinPower + Power(i)).Buckets(); got != want {
			t.Errorf("power %d: %d buckets, want %d", int(MinPower)+i, got, want)
		}
	}
}

func TestBoundsAndIndexAgreeWithTheDefinition(t *testing.T) {
	eachPower(t, func(t *testing.T, p Power) {
		los, his := bruteBounds(p)
		if len(los) != p.Buckets() {
			t.Fatalf("definition has %d buckets, Buckets says %d", len(los), p.Buckets())
		}
		if los[0] != 0 || his[len(his)-1] != math.MaxUint64 {
			t.Fatal("the definition does not cover uint64")
		}
		for i := range los {
			lo, hi := p.Bounds(i)
			if lo != los[i] || hi != his[i] {
				t.Fatalf("bucket %d: bounds %d..%d, want %d..%d", i, lo, hi, los[i], his[i])
			}
			if p.Index(lo) != i || p.Index(hi) != i {
				t.Fatalf("bucket %d: its own bounds fall into %d and %d", i, p.Index(lo), p.Index(hi))
			}
		}
	})
}

func TestIndexOfAnyValue(t *testing.T) {
	eachPower(t, func(t *testing.T, p Power) {
		los, _ := bruteBounds(p)
		rapid.Check(t, func(t *rapid.T) {
			v := rapid.Uint64().Draw(t, "v") >> rapid.IntRange(0, 63).Draw(t, "shift")
			i, found := slices.BinarySearch(los, v)
			if !found {
				i--
			}
			if got := p.Index(v); got != i {
				t.Fatalf("Index(%d) = %d, want %d", v, got, i)
			}
		})
	})
}

func TestBoundsPanicsOutside(t *testing.T) {
	for _, i := range []int{-1, Default.Buckets()} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Bounds(%d) did not panic", i)
				}
			}()
			Default.Bounds(i)
		}()
	}
}

func TestQuantileAgainstSortedValues(t *testing.T) {
	eachPower(t, func(t *testing.T, p Power) {
		rapid.Check(t, func(t *rapid.T) {
			shift := rapid.IntRange(0, 63).Draw(t, "shift")
			values := rapid.SliceOfN(rapid.Uint64(), 1, 200).Draw(t, "values")
			buckets := make([]uint64, p.Buckets())
			var sum float64
			for i := range values {
				values[i] >>= shift
				buckets[p.Index(values[i])]++
				sum += float64(values[i])
			}
			slices.Sort(values)
			q := rapid.Float64Range(0, 1).Draw(t, "q")
			rank := max(1, int(math.Ceil(q*float64(len(values)))))
			want := values[rank-1]
			lo, hi, ok := p.Quantile(buckets, q)
			if !ok || want < lo || want > hi {
				t.Fatalf("quantile %v in %d..%d (%v), want %d", q, lo, hi, ok, want)
			}
			if Count(buckets) != uint64(len(values)) {
				t.Fatalf("count %d, want %d", Count(buckets), len(values))
			}
			const slack = 1e-9 // sums of up to 200 float64 terms
			l, h := p.SumBounds(buckets)
			if sum < l*(1-slack) || sum > h*(1+slack) {
				t.Fatalf("sum %g outside %g..%g", sum, l, h)
			}
		})
	})
}

func TestQuantileEdges(t *testing.T) {
	b := make([]uint64, Default.Buckets())
	if _, _, ok := Default.Quantile(b, 0.5); ok {
		t.Error("an empty histogram has a quantile")
	}
	b[3], b[5] = 1, 1
	f := func(q float64, want uint64) {
		t.Helper()
		if lo, hi, ok := Default.Quantile(b, q); !ok || lo != want || hi != want {
			t.Errorf("quantile %v = %d..%d, %v; want %d", q, lo, hi, ok, want)
		}
	}
	f(-1, 3)
	f(0, 3)
	f(0.5, 3)
	f(0.51, 5)
	f(1, 5)
	f(2, 5)
	if _, _, ok := Default.Quantile(b, math.NaN()); ok {
		t.Error("NaN has a quantile")
	}
	b[3] = math.MaxUint64 - 1 // the product of q and n rounds above n
	f(math.Nextafter(1, 0), 3)
}

func TestSub(t *testing.T) {
	dst := make([]uint64, 3)
	if Sub(dst, []uint64{5, 7, 9}, []uint64{5, 6, 2}) || !slices.Equal(dst, []uint64{0, 1, 7}) {
		t.Errorf("difference is %v", dst)
	}
	if !Sub(dst, []uint64{9, 1, 4}, []uint64{5, 6, 2}) || !slices.Equal(dst, []uint64{9, 1, 4}) {
		t.Errorf("after a reset the difference is %v, want all of the current counts", dst)
	}
}

func TestRebinEqualsRecordingCoarse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := Power(rapid.IntRange(int(MinPower), int(MaxPower)).Draw(t, "from"))
		to := Power(rapid.IntRange(int(MinPower), int(from)).Draw(t, "to"))
		shift := rapid.IntRange(0, 63).Draw(t, "shift")
		fine, want := make([]uint64, from.Buckets()), make([]uint64, to.Buckets())
		for _, v := range rapid.SliceOf(rapid.Uint64()).Draw(t, "values") {
			fine[from.Index(v>>shift)]++
			want[to.Index(v>>shift)]++
		}
		got := make([]uint64, to.Buckets())
		if err := Rebin(got, to, fine, from); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("rebinned %v, recorded %v", got, want)
		}
		Add(got, want)
		for i := range want {
			if got[i] != 2*want[i] {
				t.Fatalf("Add: bucket %d is %d, want %d", i, got[i], 2*want[i])
			}
		}
	})
}

func TestRebinRefuses(t *testing.T) {
	f := func(to, from Power, dst, src int) {
		t.Helper()
		if Rebin(make([]uint64, dst), to, make([]uint64, src), from) == nil {
			t.Errorf("rebin of power %d into %d (%d and %d words) is accepted", from, to, src, dst)
		}
	}
	f(4, 3, Power(4).Buckets(), Power(3).Buckets()) // finer
	f(1, 3, Power(1).Buckets(), Power(3).Buckets())
	f(3, 8, Power(3).Buckets(), Power(8).Buckets())
	f(3, 4, 495, Power(4).Buckets())
	f(3, 4, Power(3).Buckets(), 975)
}

func BenchmarkIndex(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	var vs [1024]uint64
	for i := range vs {
		vs[i] = r.Uint64() >> r.IntN(64)
	}
	sum := 0
	for i := 0; b.Loop(); i++ {
		sum += Default.Index(vs[i&1023])
	}
	_ = sum
}
