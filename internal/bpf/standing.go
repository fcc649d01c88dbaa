// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"math/bits"
	"sync/atomic"
	"time"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// standing is what a source has read, brought up to date where its banks say
// that something was counted: by a byte for eight octaves of each histogram
// (HIST_BUCKETS in metric.bpf.h), by a word for each thing (TOUCHED in
// slots.bpf.h). A host does few kinds of things in a millisecond, and to read
// and add up all buckets of all CPUs would be most of what a tick costs.
type standing struct {
	frame   metric.Frame
	now     uint64 // number of the read, the stamp of what changed in it
	whole   bool   // this read looks at everything
	due     int64  // Mono when the next such is
	scratch []uint64
}

// wholly is how often everything is read, whatever the banks say. On CPUs that
// order stores weakly a byte may be seen before the bucket that it tells of,
// which is then found here at the latest.
const wholly = int64(time.Second)

// copies are the values of a bank that add up: one by one or those of a thing.
type copies struct{ first, step, n int }

// begin begins a read.
func (s *standing) begin(schema *metric.Schema, mono int64) {
	s.now++
	f := &s.frame
	s.whole = f.Schema != schema || mono >= s.due
	if s.whole {
		s.due = mono + wholly
	}
	if f.Schema != schema {
		f.Schema = schema
		f.Resize(schema.Words)
		f.Stamps = f.Stamps[:0]
		for range metric.Blocks(schema.Words) {
			f.Stamps = append(f.Stamps, s.now)
		}
	}
	f.Begin = mono
}

// member brings a member's words up to date, from at on.
func (s *standing) member(b *mappedBank, c copies, m *member, at int) {
	if m.desc.Kind != metric.Histogram {
		s.sum(b, c, m.offset, at, m.words)
		return
	}
	n := m.desc.Words()
	for i := range m.combos {
		s.histogram(b, c, m.offset+8*i*(n+1), at+i*n, m.desc.Power)
	}
}

func (s *standing) histogram(b *mappedBank, c copies, offset, at int, power hist.Power) {
	buckets := power.Buckets()
	touched := b.touched(c, offset+8*buckets)
	if s.whole {
		s.sum(b, c, offset, at, buckets)
		return
	}
	part := 8 << power
	for touched != 0 {
		i := bits.TrailingZeros64(touched) / 8
		touched &^= 0xff << (8 * i)
		from := i * part
		s.sum(b, c, offset+8*from, at+from, min(part, buckets-from))
	}
}

// touched takes the words that tell what was counted. The exchange is a full
// barrier: what is read after it is what they tell of, or newer.
func (b *mappedBank) touched(c copies, offset int) (all uint64) {
	for i := range c.n {
		word := &b.value(c.first+i*c.step, offset, 1)[0]
		if atomic.LoadUint64(word) != 0 {
			all |= atomic.SwapUint64(word, 0)
		}
	}
	return all
}

// sum brings n words up to date.
func (s *standing) sum(b *mappedBank, c copies, offset, at, n int) {
	words := b.value(c.first, offset, n)
	if c.n > 1 {
		words = append(s.scratch[:0], words...)
		for i := 1; i < c.n; i++ {
			for j, w := range b.value(c.first+i*c.step, offset, n) {
				words[j] += w
			}
		}
		s.scratch = words
	}
	s.put(at, words)
}

// put sets words, and the stamps of those that are others than before.
func (s *standing) put(at int, words []uint64) {
	to := s.frame.Values[at : at+len(words)]
	for i, w := range words {
		if to[i] != w {
			to[i] = w
			s.frame.Stamps[(at+i)/metric.Block] = s.now
		}
	}
}
