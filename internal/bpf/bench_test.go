// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"testing"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// plainBanks are n values in plain memory, which begin with TOUCHED: counters
// of that many series each, and histograms.
func plainBanks(n int, counters []int, histograms int) *mappedBank {
	b := &bankSpec{stride: 8}
	for _, c := range counters {
		b.members = append(b.members, member{desc: &metric.Desc{Kind: metric.Counter}, combos: make([][]string, c), offset: b.stride, words: c, span: c})
		b.stride += 8 * c
	}
	if histograms > 0 {
		words := hist.Default.Buckets() * histograms
		b.members = append(b.members, member{desc: &metric.Desc{Kind: metric.Histogram, Power: hist.Default},
			combos: make([][]string, histograms), offset: b.stride, words: words, span: words + histograms})
		b.stride += 8 * (words + histograms)
	}
	return &mappedBank{bankSpec: b, mapping: &mapping{words: make([]uint64, n*b.stride/8), step: b.stride / 8},
		count: n, again: make([]bool, n)}
}

func benchmarkRead(b *testing.B, s interface{ Read(*metric.Frame) error }) {
	var f metric.Frame
	for b.Loop() {
		if err := s.Read(&f); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRead reads 19 histograms: all of them, and those of which three
// count on a CPU from one read to the next.
func BenchmarkRead(b *testing.B) {
	const histograms = 19
	for _, cpus := range []int{2, 64} {
		for _, all := range []bool{true, false} {
			b.Run(fmt.Sprintf("cpus=%d/all=%t", cpus, all), func(b *testing.B) {
				bank := plainBanks(cpus, nil, histograms)
				schema := &metric.Schema{Words: histograms * hist.Default.Buckets()}
				host := testHost()
				s := &Source{banks: []*mappedBank{bank}, schema: schema}
				s.mono = func() int64 {
					for i := range 3 {
						bank.value(0, 8+8*(i+1)*(hist.Default.Buckets()+1)-8, 1)[0] = 0xff00
					}
					if all {
						s.standing.due = 0
					}
					return host.Mono()
				}
				benchmarkRead(b, s)
			})
		}
	}
}

// BenchmarkReadCgroups reads what the task probe has for each cgroup, of which
// five do something.
func BenchmarkReadCgroups(b *testing.B) {
	const slots = 1024
	for _, live := range []int{50, 1000} {
		for _, banks := range []int{2, 16} {
			b.Run(fmt.Sprintf("cgroups=%d/banks=%d", live, banks), func(b *testing.B) {
				bank := plainBanks(banks*slots, []int{1, 1, 1, 2, 1, 16}, 0)
				host := testHost()
				mono := host.Mono
				host.Mono = func() int64 {
					for slot := range 5 {
						bank.value(slot, 0, 1)[0] = 1
					}
					return mono()
				}
				c := &Slots{host: host, domain: Domain{Slots: slots}, banks: banks, schema: &metric.Schema{Words: 22 * live},
					mapped: []*mappedBank{bank}}
				for slot := range live {
					c.live = append(c.live, slot)
				}
				benchmarkRead(b, c)
			})
		}
	}
}
