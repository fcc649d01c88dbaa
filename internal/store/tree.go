// SPDX-License-Identifier: Apache-2.0

package store

import (
	"math/bits"
	"sync"
)

// The buckets of a histogram are coded sample by sample: how many samples
// brought nothing, how many events the next one brought in all, and then, in a binary tree over the buckets, how
// many of them went to the left. What nothing came to costs neither bits nor
// time, so a rare event is as cheap as its place is likely, and of a busy
// sample only the spread is coded, not again and again that it is busy.
//
// A node expects that as large a share goes left as did lately. Small numbers
// are counted out, in probabilities that all nodes of the histogram share and
// that begin as those of a binomial distribution; larger ones are coded as
// their distance from what is expected.
//
// All is integer arithmetic, and the same on both sides.

const (
	treeFew     = 8       // so many events are counted out
	treeClasses = 40      // of shares up to a half: four an octave
	treeEvent   = 16      // what an event weighs in a share
	treeSample  = 32      // events that those of a sample count for at most
	treeMemory  = 128     // events that a share is made of, at most
	treeSure    = 48      // of 1<<16: no share is nearer to none or to all
	treeHalf    = 1 << 15 // a probability
	treeKnown   = 15      // how often a first probability counts as asked for
	treeMost    = 1 << 32 // of a step; what brings more is coded otherwise
	treeSpreads = 64      // classes of the spread of larger numbers
)

// treeNode is where the events that came to some buckets part.
type treeNode struct {
	left, all uint32 // weights
}

// treeModel is what is known of a histogram so far.
type treeModel struct {
	node   []treeNode  // in preorder
	gap    *jointModel // empty samples before one that is not
	total  *jointModel // events of that, less one
	few    treeCounts
	sign   [treeSpreads]prob
	number [treeSpreads][64]prob
}

// treeCounts are, by number of events, class of the share and those that were
// counted already, the probabilities that there is one more.
type treeCounts [treeFew + 1][treeClasses][treeFew]prob

// firstCounts are those of binomial distributions.
var firstCounts = sync.OnceValue(func() *treeCounts {
	var t treeCounts
	for class := range treeClasses {
		share := treeShare(class)
		dist := [treeFew + 1]uint64{1 << 40} // of no events
		for n := 1; n <= treeFew; n++ {
			for k := n; k >= 0; k-- {
				dist[k] = dist[k] >> 16 * (1<<16 - share)
				if k > 0 {
					dist[k] += dist[k-1] >> 16 * share
				}
			}
			rest := uint64(0)
			for k := n; k > 0; k-- {
				rest += dist[k]
				t[n][class][k-1] = prob{one: uint16(min(max(rest<<16/(rest+dist[k-1]+1), 64), 1<<16-64)), seen: treeKnown}
			}
		}
	}
	return &t
})

// treeClass is the class of a share up to a half, of 1<<16.
func treeClass(share uint64) int {
	n := bits.Len64(share)
	return min(max(4*(n-7)+int(share>>(n-3)&3), 0), treeClasses-1)
}

// treeShare is the middle of a class.
func treeShare(class int) uint64 {
	return min((2*(4+uint64(class)&3)+1)<<(class/4+7)>>4, treeHalf)
}

// treeModels wait to be used again.
var treeModels = sync.Pool{New: func() any { return new(treeModel) }}

// newTreeModel is one that knows nothing. It goes back to treeModels.
func newTreeModel(leaves int) *treeModel {
	m := treeModels.Get().(*treeModel)
	m.node, m.few = resized(m.node, max(leaves-1, 0)), *firstCounts()
	m.gap, m.total = newJointModel(1), newJointModel(1)
	for i := range m.node {
		m.node[i] = treeNode{treeEvent / 2, treeEvent}
	}
	for i := range m.number {
		m.sign[i] = prob{one: treeHalf}
		for j := range m.number[i] {
			m.number[i][j] = prob{one: treeHalf}
		}
	}
	return m
}

// share is the share of the side that less is expected of, and whether that
// is the right one.
func (t *treeNode) share() (share uint64, right bool) {
	share = uint64(min(max(t.left<<16/t.all, treeSure), 1<<16-treeSure))
	if share > treeHalf {
		return 1<<16 - share, true
	}
	return share, false
}

// take takes in that k of n events went left.
func (t *treeNode) take(k, n uint64) {
	if n > treeSample {
		k, n = k*treeSample*treeEvent/n, treeSample*treeEvent
	} else {
		k, n = k*treeEvent, n*treeEvent
	}
	t.left += uint32(k)
	if t.all += uint32(n); t.all > treeMemory*treeEvent {
		t.left, t.all = (t.left+1)/2, (t.all+1)/2
	}
}

// spread is what is expected of n events, and the class of how far off that
// may be.
func spread(n, share uint64) (expected uint64, class int) {
	expected = n * share >> 16
	return expected, bits.Len64(expected*(1<<16-share)>>10 + 1)
}

// encode codes how many of n events are on the side of a share.
func (m *treeModel) encode(e *rangeEncoder, share, n, x uint64) {
	if n <= treeFew {
		p := &m.few[n][treeClass(share)]
		for j := range n {
			e.bit(&p[j], x > j)
			if x <= j {
				return
			}
		}
		return
	}
	expected, class := spread(n, share)
	r := x - expected
	e.bit(&m.sign[class], int64(r) < 0)
	if int64(r) < 0 {
		r = ^r
	}
	length := bits.Len64(r + 1)
	for i := 1; i < length; i++ {
		e.bit(&m.number[class][i], true)
	}
	e.bit(&m.number[class][length], false)
	e.plain(r+1, length-1)
}

// decode is the other way round. Hostile bytes may give more than n.
func (m *treeModel) decode(d *rangeDecoder, share, n uint64) (x uint64) {
	if n <= treeFew {
		p := &m.few[n][treeClass(share)]
		for x < n && d.bit(&p[x]) {
			x++
		}
		return x
	}
	expected, class := spread(n, share)
	negative := d.bit(&m.sign[class])
	length := 1
	for length < 63 && d.bit(&m.number[class][length]) {
		length++
	}
	r := (1<<(length-1) | d.plain(length-1)) - 1
	if negative {
		r = ^r
	}
	return r + expected
}

// event is that some came to a leaf.
type event struct {
	leaf int
	n    uint64
}

// split codes where n events of the leaves lo..hi went.
func (m *treeModel) split(e *rangeEncoder, node, lo, hi int, all []event, n uint64) {
	if hi-lo < 2 || n == 0 {
		return
	}
	mid, k, left := (lo+hi)/2, uint64(0), 0
	for left < len(all) && all[left].leaf < mid {
		k += all[left].n
		left++
	}
	t := &m.node[node]
	if share, right := t.share(); right {
		m.encode(e, share, n, n-k)
	} else {
		m.encode(e, share, n, k)
	}
	t.take(k, n)
	m.split(e, node+1, lo, mid, all[:left], k)
	m.split(e, node+mid-lo, mid, hi, all[left:], n-k)
}

// treeReader decodes samples.
type treeReader struct {
	*treeModel
	d   rangeDecoder
	f   func(leaf, i int, d uint64)
	i   int
	bad bool
}

// split decodes where n events went, at least one.
func (r *treeReader) split(node, lo, hi int, n uint64) {
	for hi-lo > 1 && !r.bad {
		t := &r.node[node]
		share, right := t.share()
		k := r.decode(&r.d, share, n)
		if k > n {
			r.bad = true
			return
		}
		if right {
			k = n - k
		}
		t.take(k, n)
		mid := (lo + hi) / 2
		if k > 0 && k < n {
			r.split(node+1, lo, mid, k)
		}
		if k == n {
			node, hi = node+1, mid
		} else {
			node, lo, n = node+mid-lo, mid, n-k
		}
	}
	r.f(lo, r.i, n)
}

// tree reports whether the steps of a bucket can be coded so.
func (s *steps) tree() bool {
	for _, d := range s.by {
		if d >= treeMost {
			return false
		}
	}
	return true
}

// appendTree appends the n steps of buckets.
func appendTree(dst []byte, n int, all []steps) []byte {
	starts := make([]uint32, n+1)
	for k := range all {
		for _, at := range all[k].at {
			starts[at+1]++
		}
	}
	for i := range n {
		starts[i+1] += starts[i]
	}
	events := make([]event, starts[n])
	for k := range all {
		for j, at := range all[k].at {
			events[starts[at]] = event{k, all[k].by[j]}
			starts[at]++
		}
	}
	m, e := newTreeModel(len(all)), newRangeEncoder(dst)
	defer treeModels.Put(m)
	from, gap := uint32(0), uint64(0)
	for i := range n {
		sample, total := events[from:starts[i]], uint64(0)
		from = starts[i]
		for _, v := range sample {
			total += v.n
		}
		if total == 0 {
			gap++
			continue
		}
		m.gap.begin()
		m.gap.encode(&e, 0, gap)
		gap = 0
		m.total.begin()
		m.total.encode(&e, 0, total-1)
		m.split(&e, 0, 0, len(all), sample, total)
	}
	if gap > 0 {
		m.gap.begin()
		m.gap.encode(&e, 0, gap)
	}
	return e.finish()
}

// readTree calls f for every step that is not zero, of the k-th bucket.
func readTree(b []byte, n, buckets int, f func(k, i int, d uint64)) bool {
	r := treeReader{treeModel: newTreeModel(buckets), d: newRangeDecoder(b), f: f}
	defer treeModels.Put(r.treeModel)
	for ; r.i < n; r.i++ {
		r.gap.begin()
		gap := r.gap.decode(&r.d, 0)
		if gap >= uint64(n-r.i) {
			return gap == uint64(n-r.i) && !r.d.bad()
		}
		r.i += int(gap)
		r.total.begin()
		total := r.total.decode(&r.d, 0) + 1
		if total == 0 || total > treeMost*uint64(buckets) {
			return false
		}
		r.split(0, 0, buckets, total)
		if r.bad || r.d.bad() {
			return false
		}
	}
	return true
}
