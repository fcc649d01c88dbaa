// SPDX-License-Identifier: Apache-2.0

package store

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestChangesComeBackInTheOrderOfWords puts the changes of many lives between
// each other, twice in the same memory.
func TestChangesComeBackInTheOrderOfWords(t *testing.T) {
	type change struct {
		at uint16
		by uint64
	}
	const lives, frames, first = 7, 400, 3
	var log changeLog
	var g gathered
	r := rand.New(rand.NewPCG(1, 2))
	for range 2 {
		log.reset()
		var tracks [lives]track
		var want [lives][][]change
		for l := range want {
			want[l] = make([][]change, 1+l*l) // the first one is a counter
		}
		total := 0
		for at := first; at < frames; at++ {
			for l := range lives - 1 { // the last one never changes
				for word := range want[l] {
					if r.IntN(3) > 0 {
						continue
					}
					by := r.Uint64() >> r.IntN(64)
					log.add(&tracks[l], at, word, len(want[l]), by)
					want[l][word] = append(want[l][word], change{uint16(at - first), by})
					total++
				}
			}
		}
		if log.bytes < 2*total || log.bytes > 14*total {
			t.Errorf("%d changes are said to take %d bytes", total, log.bytes)
		}
		for l := range lives {
			g.gather(&log, &tracks[l], len(want[l]), first)
			for word := range want[l] {
				s := g.of(word, frames-first+1)
				var got []change
				for i := range s.at {
					got = append(got, change{s.at[i], s.by[i]})
				}
				if !slices.Equal(got, want[l][word]) || s.n != frames-first {
					t.Fatalf("life %d, word %d: %d changes of %d steps, want %d of %d", l, word, len(got), s.n, len(want[l][word]), frames-first)
				}
			}
		}
	}
	if pages := len(log.pages); pages > 1+log.bytes/(chunkPage*(chunkBytes-chunkNext))+1 {
		t.Errorf("%d pages for %d bytes", pages, log.bytes)
	}
}
