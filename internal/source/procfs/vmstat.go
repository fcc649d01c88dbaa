// SPDX-License-Identifier: Apache-2.0

package procfs

import "rezolus/internal/source"

const vmstat = "memory_vmstat"

// A read takes 12 us on 2 CPUs, and longer the more there are: the kernel adds
// up the events of each (BenchmarkSamplers).
func vmstatSampler() source.Sampler {
	return source.Sampler{Name: vmstat, Reads: "/proc/vmstat", Descs: rowDescs(vmstatTable),
		Open: func() (source.Source, error) { return newKeyedSource(vmstat, "/proc/vmstat", vmstatTable) }}
}
