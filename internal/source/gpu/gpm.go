// SPDX-License-Identifier: Apache-2.0

package gpu

// profileMetrics are what is asked of GPM (GPU performance monitoring,
// nvmlGpmMetricId_t), and of how many bytes a second its rates are steps.
var profileMetrics = [...]struct {
	id uint32
	reading
	times float64 // 0: a percentage
}{
	{2, smUtilization, 0}, {3, smOccupancy, 0}, {10, dramUtilization, 0},
	{5, tensorAny, 0}, {7, tensorHMMA, 0}, {9, tensorIMMA, 0}, {6, tensorDFMA, 0},
	{11, pipeFP64, 0}, {12, pipeFP32, 0}, {13, pipeFP16, 0}, {4, pipeInteger, 0},
	{60, nvlinkReceive, 1 << 20}, {61, nvlinkTransmit, 1 << 20},
}

// startProfile makes ready what GPM needs, where the GPU has it: two samples,
// between which it measures.
func (d *nvidia) startProfile() {
	support := profileSupport{version: profileVersion}
	if d.profileSupport(d.handle, &support) != success || support.supported == 0 || d.profileAlloc(&d.older) != success {
		return
	}
	if d.profileAlloc(&d.newer) != success {
		d.profileFree(d.older)
		return
	}
	d.profiled = true
}

func (d *nvidia) endProfile() {
	if d.profiled {
		d.profileFree(d.older)
		d.profileFree(d.newer)
	}
	d.profiled = false
}

// readProfile takes a sample; from the second on it asks what was measured
// since the one before.
func (d *nvidia) readProfile(g *gpu) {
	if !d.profiled || d.profileTake(d.handle, d.newer) != success {
		d.once = false
		return
	}
	if d.once {
		d.profile.version, d.profile.count = profileVersion, uint32(len(profileMetrics))
		d.profile.older, d.profile.newer = d.older, d.newer
		for i, m := range profileMetrics {
			d.profile.metrics[i] = profileMetric{id: m.id}
		}
		if d.profileGet(&d.profile) == success {
			d.takeProfile(g)
		}
	}
	d.older, d.newer, d.once = d.newer, d.older, true
}

func (d *nvidia) takeProfile(g *gpu) {
	for i, m := range profileMetrics {
		switch p := &d.profile.metrics[i]; {
		case p.result != success || p.value != p.value || p.value < 0:
		case m.times > 0:
			g.integer(m.reading, uint64(p.value*m.times))
		default:
			g.float(m.reading, p.value)
		}
	}
}
