// SPDX-License-Identifier: Apache-2.0

package procfs

import "rezolus/internal/source"

// netSamplers are the samplers of the network and of the disks.
func netSamplers() []source.Sampler {
	return append([]source.Sampler{
		interfacesSampler(),
		linksSampler(),
		protocolsSampler(),
		socketsSampler(),
		softnetSampler(),
		disksSampler(),
	}, tcpSamplers()...)
}
