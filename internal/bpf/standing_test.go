// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// counts adds to a bucket of the i-th histogram of plainBanks as hist_add does.
func (b *mappedBank) counts(value, i, bucket int, tell bool) {
	n := hist.Default.Buckets()
	words := b.value(value, b.members[len(b.members)-1].offset+8*i*(n+1), n+1)
	words[bucket]++
	if tell {
		words[n] |= 1 << (8 * (bucket >> 6))
	}
}

// frozen is a time at which a whole read is never due twice.
func frozen() int64 { return 5 }

// TestReadsFindWhatBanksTellOf counts in two histograms and a counter on three
// CPUs, and holds each read against the sums.
func TestReadsFindWhatBanksTellOf(t *testing.T) {
	n := hist.Default.Buckets()
	rapid.Check(t, func(t *rapid.T) {
		b := plainBanks(3, []int{2}, 2)
		s := &Source{banks: []*mappedBank{b}, schema: &metric.Schema{Words: 2 + 2*n}, mono: frozen}
		want := make([]uint64, s.schema.Words)
		var once, often metric.Frame
		for range rapid.IntRange(1, 30).Draw(t, "reads") {
			for range rapid.IntRange(0, 4).Draw(t, "events") {
				cpu, i, bucket := rapid.IntRange(0, 2).Draw(t, "cpu"), rapid.IntRange(0, 1).Draw(t, "of"), rapid.IntRange(0, n-1).Draw(t, "bucket")
				b.counts(cpu, i, bucket, true)
				want[2+i*n+bucket]++
				b.value(cpu, 8, 2)[i]++
				want[i]++
			}
			if err := s.Read(&often); err != nil {
				t.Fatal(err)
			}
			to := &often
			if rapid.IntRange(0, 5).Draw(t, "once") == 0 {
				if to = &once; s.Read(to) != nil {
					t.Fatal("cannot read")
				}
			}
			if !slices.Equal(to.Values, want) {
				t.Fatalf("a read gives %v, want %v", to.Values, want)
			}
		}
	})
}

func TestStampsTellWhatChanged(t *testing.T) {
	n := hist.Default.Buckets()
	b := plainBanks(2, nil, 3)
	s := &Source{banks: []*mappedBank{b}, schema: &metric.Schema{Words: 3 * n}, mono: frozen}
	var f metric.Frame
	read := func() []uint64 {
		if err := s.Read(&f); err != nil {
			t.Fatal(err)
		}
		return slices.Clone(f.Stamps)
	}
	first := read()
	if second := read(); !slices.Equal(first, second) || slices.Contains(first, 0) {
		t.Errorf("nothing changed, and the stamps were %v, are %v", first, second)
	}
	b.counts(1, 1, 70, true)
	for i, stamp := range read() {
		if changed := stamp != first[i]; changed != (i == (n+70)/metric.Block) {
			t.Errorf("stamp %d is %d, was %d, and word %d changed", i, stamp, first[i], n+70)
		}
	}
}

// TestAWholeReadFindsWhatNobodyTold is the net below CPUs that order stores
// weakly.
func TestAWholeReadFindsWhatNobodyTold(t *testing.T) {
	b := plainBanks(2, nil, 1)
	now := int64(0)
	s := &Source{banks: []*mappedBank{b}, schema: &metric.Schema{Words: hist.Default.Buckets()}, mono: func() int64 { return now }}
	var f metric.Frame
	for _, step := range []struct {
		after int64
		want  uint64
	}{{0, 1}, {wholly - 1, 1}, {wholly, 3}} {
		b.counts(0, 0, 100, false)
		now = step.after
		if err := s.Read(&f); err != nil {
			t.Fatal(err)
		}
		if f.Values[100] != step.want {
			t.Errorf("after %d ns the bucket is %d, want %d", step.after, f.Values[100], step.want)
		}
	}
}

// TestASlotIsReadOnceMore: a program looks a slot up before a read, and counts
// after it.
func TestASlotIsReadOnceMore(t *testing.T) {
	host := testHost()
	host.Mono = frozen
	c := &Slots{host: host, domain: Domain{Slots: 4}, banks: 2, schema: &metric.Schema{Words: 3}, live: []int{0, 2, 3},
		mapped: []*mappedBank{plainBanks(8, []int{1}, 0)}}
	b := c.mapped[0]
	var f metric.Frame
	want := func(w ...uint64) {
		t.Helper()
		if err := c.Read(&f); err != nil || !slices.Equal(f.Values, w) {
			t.Errorf("the slots have %d, %v, want %d", f.Values, err, w)
		}
	}
	want(0, 0, 0)
	b.value(4+2, 0, 1)[0] = 1
	want(0, 0, 0)
	b.value(4+2, 8, 1)[0] = 7
	want(0, 7, 0)
	b.value(4+2, 8, 1)[0] = 9 // nobody told
	want(0, 7, 0)
}
