// SPDX-License-Identifier: Apache-2.0

package procfs

import "rezolus/internal/source"

// Samplers are all the samplers of /proc but that of /proc/stat (NewStat).
func Samplers() []source.Sampler { return netSamplers() }
