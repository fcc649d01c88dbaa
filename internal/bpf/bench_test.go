// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"testing"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// plainBanks are n values in plain memory: a member for each number of words,
// of one series.
func plainBanks(n int, words ...int) *mappedBank {
	b := &bankSpec{}
	for _, w := range words {
		b.members = append(b.members, member{desc: &metric.Desc{}, offset: b.stride, words: w})
		b.stride += 8 * w
	}
	return &mappedBank{bankSpec: b, mapping: &mapping{words: make([]uint64, n*b.stride/8), step: b.stride / 8}, count: n}
}

func benchmarkRead(b *testing.B, s interface{ Read(*metric.Frame) error }) {
	var f metric.Frame
	for b.Loop() {
		if err := s.Read(&f); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRead reads three histograms and one of 16 series.
func BenchmarkRead(b *testing.B) {
	h := hist.Default.Buckets()
	for _, cpus := range []int{2, 64} {
		b.Run(fmt.Sprintf("cpus=%d", cpus), func(b *testing.B) {
			bank := plainBanks(cpus, h, h, h, 16*h)
			b.SetBytes(int64(8 * len(bank.words)))
			benchmarkRead(b, &Source{mono: testHost().Mono, banks: []*mappedBank{bank}, schema: &metric.Schema{Words: 19 * h}})
		})
	}
}

// BenchmarkReadCgroups reads what the task probe has for each cgroup.
func BenchmarkReadCgroups(b *testing.B) {
	const slots = 1024
	for _, live := range []int{50, 1000} {
		for _, banks := range []int{2, 16} {
			b.Run(fmt.Sprintf("cgroups=%d/banks=%d", live, banks), func(b *testing.B) {
				c := &Slots{host: testHost(), domain: Domain{Slots: slots}, banks: banks, schema: &metric.Schema{Words: 22 * live},
					mapped: []*mappedBank{plainBanks(banks*slots, 1, 1, 1, 2, 1, 16)}}
				for slot := range live {
					c.live = append(c.live, slot)
				}
				benchmarkRead(b, c)
			})
		}
	}
}
