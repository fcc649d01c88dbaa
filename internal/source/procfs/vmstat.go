// SPDX-License-Identifier: Apache-2.0

package procfs

import "rezolus/internal/source"

const vmstat = "memory_vmstat"

func vmstatSampler() source.Sampler {
	return source.Sampler{Name: vmstat, Reads: "/proc/vmstat", Descs: rowDescs(vmstatTable),
		Open: func() (source.Source, error) { return newKeyedSource(vmstat, "/proc/vmstat", vmstatTable) }}
}
