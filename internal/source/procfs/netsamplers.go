// SPDX-License-Identifier: Apache-2.0

package procfs

import "rezolus/internal/source"

func netSamplers() []source.Sampler { return nil }
