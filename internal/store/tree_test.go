// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// treeColumn codes samples of histograms: what each adds to every bucket.
// It is of a tree, or what appendBuckets makes of it.
func treeColumn(samples [][]uint64, chosen bool) []byte {
	buckets := len(samples[0])
	values := make([][]uint64, buckets)
	first := make([]uint64, buckets)
	for i := range values {
		values[i] = []uint64{uint64(i % 2)}
		for j := range samples {
			values[i] = append(values[i], values[i][j]+samples[j][i])
		}
		first[i] = values[i][0]
	}
	of := func(i int) steps { return stepsOf(values[i]) }
	if chosen {
		return appendBuckets(nil, first, of)
	}
	b, _ := appendTreeColumn(nil, first, of)
	return b
}

func TestCountedBucketsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		buckets := rapid.IntRange(1, 40).Draw(t, "buckets")
		samples := make([][]uint64, rapid.IntRange(1, 60).Draw(t, "samples"))
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		rare, most := rapid.IntRange(1, 30).Draw(t, "rare"), rapid.SampledFrom([]uint64{1, 3, 20, 3000, treeMost - 1}).Draw(t, "most")
		for j := range samples {
			samples[j] = make([]uint64, buckets)
			for i := range samples[j] {
				if r.IntN(rare) == 0 {
					samples[j][i] = 1 + r.Uint64N(most)
				}
			}
		}
		samples[0][0] = 1
		b := treeColumn(samples, false)
		if b[0] != byte(buckets+1) {
			t.Fatalf("the column begins with %d, want %d", b[0], buckets+1)
		}
		got := make([][]uint64, len(samples)+1)
		for j := range got {
			got[j] = make([]uint64, buckets)
		}
		if err := readBuckets(b, buckets, len(got), func(index, i int, d uint64) { got[i][index] += d }); err != nil {
			t.Fatal(err)
		}
		for j := range samples {
			if !slices.Equal(got[j+1], samples[j]) {
				t.Fatalf("sample %d: %v becomes %v", j, samples[j], got[j+1])
			}
		}
	})
}

// TestCountedBucketsAreSmall holds what a column takes against the information
// that is in it.
func TestCountedBucketsAreSmall(t *testing.T) {
	const buckets, n = 16, 2000
	for _, events := range []int{1, 4, 100} {
		r := rand.New(rand.NewPCG(3, 4))
		samples := make([][]uint64, n)
		for j := range samples {
			samples[j] = make([]uint64, buckets)
			for range events {
				samples[j][r.IntN(buckets)]++
			}
		}
		// The entropy of so many events in 16 places: log2(16) each, less the
		// order of those that came to the same sample.
		bits := 0.0
		for _, s := range samples {
			l, _ := math.Lgamma(float64(events) + 1)
			for _, k := range s {
				x, _ := math.Lgamma(float64(k) + 1)
				l -= x
			}
			bits += 4*float64(events) - l/math.Ln2
		}
		if got := 8 * float64(len(treeColumn(samples, true))); got > 1.13*bits+3000 {
			t.Errorf("%d events in each of %d samples take %.0f bits, want at most an eighth more than %.0f", events, n, got, bits)
		}
	}
}

func TestFallingAndVastBucketsAreCodedOtherwise(t *testing.T) {
	for name, values := range map[string][]uint64{
		"falls": {9, 8, 7, 7}, "vast": {0, treeMost, treeMost, 2 * treeMost}, "still": {4, 4, 4, 4},
	} {
		b := appendBuckets(nil, []uint64{values[0]}, func(int) steps { return stepsOf(values) })
		if b[0] != 1 {
			t.Errorf("%s: the column begins with %d, want the number of its buckets", name, b[0])
		}
		sum := make([]uint64, len(values))
		if err := readBuckets(b, 1, len(values), func(_, i int, d uint64) { sum[i] += d }); err != nil {
			t.Fatal(err)
		}
		for i := range sum[1:] {
			sum[i+1] += sum[i]
		}
		if !slices.Equal(sum, values) {
			t.Errorf("%s: %v becomes %v", name, values, sum)
		}
	}
}

func TestHostileCountsAreCorrupt(t *testing.T) {
	good := treeColumn([][]uint64{{1, 0, 5}, {0, 2, 900}, {3, 3, 3}}, false)
	none := func(int, int, uint64) {}
	for name, b := range map[string][]byte{
		"nothing":        {4},
		"too many":       append([]byte{4, 200}, good[2:]...),
		"no place":       {4, 1, 200, 1, 0},
		"none changes":   {4, 1, 0, 1, 0, 0, 0, 0, 0, 0},
		"ends too early": good[:len(good)-5],
	} {
		if err := readBuckets(b, 3, 40, none); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: error %v, want ErrCorrupt", name, err)
		}
	}
	if err := readBuckets(good, 3, 4, none); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

// TestTheSmallerCodingIsChosen codes events one by one, and such as come in
// clumps.
func TestTheSmallerCodingIsChosen(t *testing.T) {
	const buckets = 30
	for _, n := range []int{bucketTrial / 2, 4 * bucketTrial} {
		for most, want := range map[uint64]byte{1: buckets + 1, 60: buckets} {
			r := rand.New(rand.NewPCG(5, 6))
			samples := make([][]uint64, n)
			for j := range samples {
				samples[j] = make([]uint64, buckets)
				for range 3 {
					samples[j][r.IntN(buckets)] += 1 + r.Uint64N(most)
				}
			}
			if b := treeColumn(samples, true); b[0] != want {
				t.Errorf("%d samples of up to %d: the column begins with %d, want %d", n, most, b[0], want)
			}
		}
	}
}
