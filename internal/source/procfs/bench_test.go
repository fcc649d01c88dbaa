// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// BenchmarkSamplers is what a read of each sampler costs on this machine.
func BenchmarkSamplers(b *testing.B) {
	for _, s := range Samplers() {
		b.Run(s.Name, func(b *testing.B) {
			src, err := s.Open()
			if errors.Is(err, source.ErrUnsupported) {
				b.Skip(err)
			}
			if err != nil {
				b.Fatal(err)
			}
			defer src.Close()
			var f metric.Frame
			for b.Loop() {
				if err := src.Read(&f); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(f.Values)), "words")
		})
	}
}

// BenchmarkManyInterrupts is what this package does with the lines of a large
// machine, without what the kernel does to write them.
func BenchmarkManyInterrupts(b *testing.B) {
	const cpus, lines = 128, 600
	var text strings.Builder
	for cpu := range cpus {
		fmt.Fprintf(&text, " CPU%d", cpu)
	}
	for line := range lines {
		fmt.Fprintf(&text, "\n%4d:", line)
		for cpu := range cpus {
			fmt.Fprintf(&text, " %10d", line*cpu)
		}
		fmt.Fprintf(&text, " PCI-MSIX   %d-edge      nvme0q%d", line, line)
	}
	text.WriteByte('\n')
	s := &Interrupts{limit: interruptLines}
	if err := s.learn([]byte(text.String())); err != nil {
		b.Fatal(err)
	}
	all := []byte(text.String())
	for b.Loop() {
		if !s.parse(all) {
			b.Fatal("the lines are others")
		}
	}
}
