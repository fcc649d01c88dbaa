// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"rezolus/internal/metric"
)

const (
	maxRanks = 16           // RANKS_MAX in slots.bpf.h
	lastRank = maxRanks - 1 // RANK_LAST: no thing
	pairs    = maxRanks * maxRanks
	// reranked is how often the heaviest things are chosen anew, by what they
	// gained, of which an eighth is forgotten each time.
	reranked = time.Second
)

// ranks are the heaviest things of a domain, between whom banks of pairs count.
// A thing keeps its rank while it lives, unless another becomes twice as heavy
// as the lightest that has one. What pairs of a thing without a rank any more
// have counted is Other's from then on, so that the sum over all pairs is exact.
type ranks struct {
	slots *Slots
	table *ebpf.Map
	cells *mapping // rank by slot

	banks   []*pairBank
	holders [maxRanks]*holder // 0: Other, lastRank: no thing
	due     int64             // Mono when to choose again
	totals  []uint64          // of weight, by slot, when they were chosen last
	weights []uint64          // gained lately, by slot
	row     []uint64          // scratch: what a member publishes
}

type holder struct {
	*tenant
	start   int64
	leaving bool // its rank was taken; to be moved to Other at the next read
}

// pairBank is what a bank of pairs counts, and how it is published: the sum of
// its banks, less base, and carry on top.
type pairBank struct {
	*mappedBank
	sums        [pairs]uint64 // as read last
	base, carry []*[pairs]uint64
}

func newRanks(c *Slots) (*ranks, error) {
	table, err := ebpf.NewMap(&ebpf.MapSpec{Name: c.domain.Name + "_ranks", Type: ebpf.Array, KeySize: 4, ValueSize: 8,
		MaxEntries: uint32(c.domain.Slots), Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		return nil, fmt.Errorf("make the ranks of domain %s: %w", c.domain.Name, err)
	}
	cells, err := mapMemory(table, 8)
	if err != nil {
		return nil, errors.Join(err, table.Close())
	}
	return &ranks{slots: c, table: table, cells: cells,
		totals: make([]uint64, c.domain.Slots), weights: make([]uint64, c.domain.Slots)}, nil
}

func (r *ranks) close() error {
	errs := []error{r.cells.close(), r.table.Close()}
	for _, b := range r.banks {
		errs = append(errs, b.close())
	}
	r.banks = nil
	return errors.Join(errs...)
}

// add takes over a bank of pairs.
func (r *ranks) add(b *mappedBank) {
	p := &pairBank{mappedBank: b}
	p.reset()
	r.banks = append(r.banks, p)
}

// reset begins to count anew: the kernel's words are zero.
func (p *pairBank) reset() {
	p.base, p.carry = nil, nil
	for range p.whole.members {
		p.base, p.carry = append(p.base, new([pairs]uint64)), append(p.carry, new([pairs]uint64))
	}
}

// update takes ranks away and gives them. It tells whether the membership
// changed.
func (r *ranks) update(now int64) (changed bool) {
	for rank, h := range r.holders {
		switch {
		case h == nil:
		case h.leaving: // programs that still had the rank have ended
			r.move(rank)
			r.holders[rank], changed = nil, true
		case h.state != resident || r.slots.tenants[h.slot] != h.tenant:
			r.take(rank)
		}
	}
	if now < r.due {
		return changed
	}
	r.due = now + int64(reranked)
	return r.choose(now) || changed
}

func (r *ranks) take(rank int) {
	h := r.holders[rank]
	h.leaving = true
	atomic.StoreUint64(&r.cells.value(h.slot, 0, 1)[0], 0)
}

// choose gives free ranks to the heaviest things, and takes one from a thing
// that is far lighter than one without.
func (r *ranks) choose(now int64) (changed bool) {
	var without []*tenant
	for slot, t := range r.slots.tenants {
		if t == nil || slot == 0 {
			r.totals[slot], r.weights[slot] = 0, 0
			continue
		}
		total := r.slots.weight(slot)
		r.weights[slot] += total - min(total, r.totals[slot]) - r.weights[slot]/8
		r.totals[slot] = total
		if t.state == resident && r.weights[slot] > 0 && !r.holds(t) {
			without = append(without, t)
		}
	}
	slices.SortFunc(without, func(a, b *tenant) int { return cmp.Compare(r.weights[b.slot], r.weights[a.slot]) })
	for rank := 1; rank < lastRank && len(without) > 0; rank++ {
		if r.holders[rank] == nil {
			r.give(rank, without[0])
			without, changed = without[1:], true
		}
	}
	lightest := r.lightest()
	if lightest > 0 && len(without) > 0 && r.weights[without[0].slot] > 2*r.weights[r.holders[lightest].slot] {
		r.take(lightest)
		r.due = now // the next read moves it, and gives the rank away
	}
	return changed
}

func (r *ranks) holds(t *tenant) bool {
	return slices.ContainsFunc(r.holders[:], func(h *holder) bool { return h != nil && h.tenant == t })
}

func (r *ranks) give(rank int, t *tenant) {
	r.holders[rank] = &holder{tenant: t, start: r.slots.host.Wall()}
	atomic.StoreUint64(&r.cells.value(t.slot, 0, 1)[0], uint64(rank))
}

// lightest is the rank of the holder that gained least lately; 0: there is none.
func (r *ranks) lightest() (at int) {
	for rank, h := range r.holders {
		if h != nil && !h.leaving && (at == 0 || r.weights[h.slot] < r.weights[r.holders[at].slot]) {
			at = rank
		}
	}
	return at
}

// move gives what the pairs of a rank counted to Other.
func (r *ranks) move(rank int) {
	for _, b := range r.banks {
		for i := range b.whole.members {
			sums := b.read(&b.whole.members[i])
			base, carry := b.base[i], b.carry[i]
			give := func(from, to int) {
				carry[to] += sums[from] - base[from] + carry[from]
				base[from], carry[from] = sums[from], 0
			}
			for other := range maxRanks {
				if other == rank {
					give(rank*maxRanks+rank, 0)
					continue
				}
				give(rank*maxRanks+other, other)
				give(other*maxRanks+rank, other*maxRanks)
			}
		}
	}
}

// read sums a member over the CPUs.
func (b *pairBank) read(m *member) *[pairs]uint64 {
	copy(b.sums[:], b.value(0, m.offset, pairs))
	for i := 1; i < b.count; i++ {
		for j, w := range b.value(i, m.offset, pairs) {
			b.sums[j] += w
		}
	}
	return &b.sums
}

// published are the ranks that have series: Other, those held, and as second
// of a pair no thing at all.
func (r *ranks) published(second bool) (all []int) {
	all = append(all, 0)
	for rank := 1; rank < lastRank; rank++ {
		if r.holders[rank] != nil {
			all = append(all, rank)
		}
	}
	if second {
		all = append(all, lastRank)
	}
	return all
}

// series are those of all pairs, in the order in which fill fills them.
func (r *ranks) series() (series []metric.Series) {
	for _, b := range r.banks {
		for i := range b.members {
			m := &b.members[i]
			for _, first := range r.published(false) {
				for _, second := range r.published(true) {
					since := max(r.slots.tenants[0].start, m.since)
					names := make([]string, 2)
					for n, rank := range []int{first, second} {
						switch h := r.holders[rank]; {
						case rank == lastRank:
							names[n] = b.last
						case h == nil:
							names[n] = Other
						default:
							names[n], since = h.Values[0], max(since, h.start)
						}
					}
					series = append(series, metric.Series{Desc: m.desc, Values: m.values(nil, names), Start: since})
				}
			}
		}
	}
	return series
}

// fill puts the values behind what a frame has.
func (r *ranks) fill(s *standing, at int) {
	for _, b := range r.banks {
		for i := range b.members {
			m := &b.members[i]
			own := slices.IndexFunc(b.whole.members, func(w member) bool { return w.offset == m.offset })
			sums := b.read(m)
			r.row = r.row[:0]
			for first := range lastRank {
				if first > 0 && r.holders[first] == nil {
					continue
				}
				for second := range maxRanks {
					if second > 0 && second < lastRank && r.holders[second] == nil {
						continue
					}
					pair := first*maxRanks + second
					r.row = append(r.row, sums[pair]-b.base[own][pair]+b.carry[own][pair])
				}
			}
			s.put(at, r.row)
			at += len(r.row)
		}
	}
}
