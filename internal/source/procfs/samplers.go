// SPDX-License-Identifier: Apache-2.0

package procfs

import "rezolus/internal/source"

// Samplers are all the samplers of this package but those of Stat, which the
// agent has by itself.
func Samplers() []source.Sampler {
	return append([]source.Sampler{
		meminfoSampler(),
		vmstatSampler(),
		numaSampler(),
		buddyinfoSampler(),
		pressureSampler(),
		systemSampler(),
		schedstatSampler(),
		interruptsSampler(),
	}, netSamplers()...)
}
