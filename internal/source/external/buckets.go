// SPDX-License-Identifier: Apache-2.0

package external

import (
	"bytes"
	"math"

	"rezolus/internal/hist"
)

// histogram reads G,M:COUNTS: an H2 histogram of grouping power G for values
// below 2^M. It has (M-G+1)*2^G buckets, the first of those that this agent
// has for G. Finer ones than the agent keeps are made coarser, which is exact.
func (p *parser) histogram(b []byte) error {
	layout, counts, ok := bytes.Cut(b, []byte(":"))
	g, m, both := bytes.Cut(layout, []byte(","))
	from, good := number(g)
	limit, good2 := number(m)
	if !ok || !both || !good || !good2 {
		return refuse(syntax, "histogram:%.40q; want histogram:G,M:COUNTS", b)
	}
	if from < uint64(power) || from > uint64(hist.MaxPower) || limit <= from || limit > 64 {
		return refuse(badNumber, "histogram:%d,%d; want a grouping power of %d to %d and a larger maximum power of at most 64",
			from, limit, power, hist.MaxPower)
	}
	fine := hist.Power(from)
	if cap(p.buckets) < fine.Buckets() {
		p.buckets = make([]uint64, fine.Buckets())
	}
	p.buckets = p.buckets[:fine.Buckets()]
	clear(p.buckets)
	if err := readCounts(p.buckets[:(limit-from+1)<<from], counts); err != nil {
		return err
	}
	p.coarse = [len(p.coarse)]uint64{}
	if err := hist.Rebin(p.coarse[:], power, p.buckets, fine); err != nil {
		return refuse(badNumber, "histogram: %v", err)
	}
	p.line.words = append(p.line.words, p.coarse[:]...)
	return nil
}

// readCounts reads the counts of buckets from the first on; INDEX=COUNT goes
// on at a bucket further up. What is not there is 0.
func readCounts(to []uint64, b []byte) error {
	at, total := uint64(0), uint64(0)
	for w, rest := word(b); len(w) > 0; w, rest = word(rest) {
		if index, count, sparse := bytes.Cut(w, []byte("=")); sparse {
			n, ok := number(index)
			if !ok || n < at {
				return refuse(badNumber, "histogram: bucket %.40q; want a number, each above the one before", index)
			}
			at, w = n, count
		}
		n, ok := number(w)
		if !ok || n > math.MaxUint64-total {
			return refuse(badNumber, "histogram: count %.40q; want whole numbers whose sum is below 2^64", w)
		}
		if at >= uint64(len(to)) {
			return refuse(badNumber, "histogram: bucket %d; there are %d of that grouping and maximum power", at, len(to))
		}
		to[at] = n
		total += n
		at++
	}
	return nil
}
