// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
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
