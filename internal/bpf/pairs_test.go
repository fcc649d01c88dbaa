// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"testing"

	"rezolus/internal/metric"
)

// paired are slots with three things in them and one bank of pairs, in memory
// that the test writes as programs would.
func paired() (*Slots, *mapping) {
	words := &mapping{words: make([]uint64, pairs), step: pairs}
	m := member{desc: &metric.Desc{Name: "pair", Kind: metric.Counter, Sampler: "s", Keys: []string{"a", "b"}},
		words: pairs, owner: []string{"a", "b"}, combos: [][]string{{}}, pairs: true}
	spec := &bankSpec{domain: "x", keys: []string{"a", "b"}, last: "none", members: []member{m}}
	c := &Slots{domain: Domain{Name: "x", Slots: 8}, host: testHost(), banks: 1, byID: map[uint64]*tenant{}, changed: true,
		cells: &mapping{words: make([]uint64, 64), step: 2}, tenants: make([]*tenant, 8)}
	c.tenants[0] = &tenant{}
	for slot := 1; slot <= 3; slot++ {
		c.tenants[slot] = &tenant{Thing: Thing{ID: uint64(slot), Values: []string{string('a' + rune(slot-1))}}, slot: slot}
	}
	c.ranks = &ranks{slots: c, cells: &mapping{words: make([]uint64, 8), step: 1}, totals: make([]uint64, 8), weights: make([]uint64, 8)}
	c.ranks.add(&mappedBank{bankSpec: spec, mapping: words, count: 1, whole: spec})
	return c, words
}

// shownPairs are the pairs that are published, and their sum.
func shownPairs(t *testing.T, c *Slots) (map[string]uint64, uint64) {
	t.Helper()
	series := c.ranks.series()
	var s standing
	s.begin(&metric.Schema{Words: len(series)}, 0)
	c.ranks.fill(&s, 0)
	values := s.frame.Values
	all, sum := map[string]uint64{}, uint64(0)
	for i, s := range series {
		all[s.Values[0]+" "+s.Values[1]] = values[i]
		sum += values[i]
	}
	return all, sum
}

func TestPairsOfAThingThatLeavesAreOthers(t *testing.T) {
	c, words := paired()
	r := c.ranks
	r.give(1, c.tenants[1])
	r.give(2, c.tenants[2])
	for first := range lastRank {
		for second := range maxRanks {
			if first <= 2 && (second <= 2 || second == lastRank) {
				words.words[first*maxRanks+second] = uint64(100 + 10*first + second)
			}
		}
	}
	before, sum := shownPairs(t, c)
	if len(before) != 3*4 || before["a b"] != 112 || before["b none"] != 100+20+lastRank {
		t.Fatalf("published are %v", before)
	}
	r.take(1)
	if r.cells.words[1] != 0 {
		t.Error("programs still find the rank that was taken")
	}
	words.words[1*maxRanks+2] += 7 // of a program that still had it
	if !r.update(0) {
		t.Error("a thing lost its rank, and the membership is as it was")
	}
	after, moved := shownPairs(t, c)
	if moved != sum+7 {
		t.Errorf("all pairs together are %d, want %d", moved, sum+7)
	}
	if after["other b"] != before["other b"]+before["a b"]+7 || after["b other"] != before["b other"]+before["b a"] ||
		after["other other"] != before["other other"]+before["a a"]+before["a other"]+before["other a"] || after["b b"] != before["b b"] {
		t.Errorf("before %v, after %v", before, after)
	}
	// The rank goes to another thing, which begins at zero.
	r.give(1, c.tenants[3])
	again, total := shownPairs(t, c)
	if again["c b"] != 0 || again["b c"] != 0 || again["c none"] != 0 || total != moved {
		t.Errorf("a new holder begins with %v, in all %d, want %d", again, total, moved)
	}
	words.words[1*maxRanks+2] += 5
	if again, _ := shownPairs(t, c); again["c b"] != 5 {
		t.Errorf("its pair counts %d, want 5", again["c b"])
	}
}

func TestTheHeaviestGetARank(t *testing.T) {
	c, _ := paired()
	weights := &mapping{words: make([]uint64, 8), step: 1}
	spec := &bankSpec{domain: "x", keys: []string{"a"}, members: []member{{desc: &metric.Desc{Kind: metric.Counter}, words: 1, weight: true}}}
	c.mapped = []*mappedBank{{bankSpec: spec, mapping: weights, count: 1, whole: spec}}
	now := int64(0)
	turn := func() {
		now += int64(reranked)
		c.ranks.update(now)
	}
	weights.words[2] = 1000
	turn()
	if h := c.ranks.holders[1]; h == nil || h.slot != 2 || c.ranks.holders[2] != nil {
		t.Fatalf("the only thing that weighs anything has no rank: %+v", c.ranks.holders)
	}
	if c.ranks.cells.words[2] != 1 {
		t.Error("programs do not find its rank")
	}
	weights.words[1], weights.words[3] = 10, 20
	turn()
	if c.ranks.cells.words[3] != 2 || c.ranks.cells.words[1] != 3 {
		t.Errorf("ranks by slot are %v", c.ranks.cells.words)
	}
	// It dies: programs lose its rank first, then its series end.
	c.tenants[2].state = died
	turn()
	if c.ranks.cells.words[2] != 0 || c.ranks.holders[1] == nil {
		t.Error("a thing that died keeps its rank, or lost its series before the last read")
	}
	c.tenants[2] = nil
	turn()
	if c.ranks.holders[1] != nil {
		t.Error("a dead thing has series")
	}
}
