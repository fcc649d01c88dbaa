// SPDX-License-Identifier: Apache-2.0

package gpu

import "encoding/binary"

// The file gpu_metrics is a structure that begins with its size and its
// version (drivers/gpu/drm/amd/include/kgd_pp_interface.h): two bytes of size,
// a byte of format revision (1: graphics cards, 2 and 3: processors with
// graphics) and one of content revision. Fields lie where the compiler of a
// 64-bit machine puts them, little endian; all bits set is what the GPU does
// not have.
const metricsHeader = 4

// metricsField is a field: size bytes at offset, in steps of times.
type metricsField struct {
	reading
	offset, size int
	times        float64
}

// metricsForms are the fields of each form: what is common to the contents from
// first to last of a format.
var metricsForms = []struct {
	format, first, last byte
	fields              []metricsField
}{
	{1, 0, 0, []metricsField{
		{temperatureEdge, 16, 2, 1}, {temperatureJunction, 18, 2, 1}, {temperatureMemory, 20, 2, 1},
		{utilization, 28, 2, 1}, {memoryUtilization, 30, 2, 1}, {media, 32, 2, 1}, {powerUsage, 34, 2, 1000},
		{clockGraphics, 54, 2, 1e6}, {clockMemory, 58, 2, 1e6},
	}},
	{1, 1, 3, []metricsField{
		{temperatureEdge, 4, 2, 1}, {temperatureJunction, 6, 2, 1}, {temperatureMemory, 8, 2, 1},
		{utilization, 16, 2, 1}, {memoryUtilization, 18, 2, 1}, {media, 20, 2, 1}, {powerUsage, 22, 2, 1000},
		{clockGraphics, 54, 2, 1e6}, {clockMemory, 58, 2, 1e6},
	}},
	// Only from here on is the unit of the energy the same for all: 2^-16 J.
	{1, 4, 4, []metricsField{
		{temperatureJunction, 4, 2, 1}, {temperatureMemory, 6, 2, 1}, {powerUsage, 10, 2, 1000},
		{utilization, 12, 2, 1}, {memoryUtilization, 14, 2, 1}, {energy, 24, 8, 1000. / 65536},
	}},
	{1, 5, 6, []metricsField{ // 32 decoders of pictures lie before the energy
		{temperatureJunction, 4, 2, 1}, {temperatureMemory, 6, 2, 1}, {powerUsage, 10, 2, 1000},
		{utilization, 12, 2, 1}, {memoryUtilization, 14, 2, 1}, {energy, 88, 8, 1000. / 65536},
	}},
	// Temperatures are in hundredths. The drivers do not agree on the units of
	// the rest, of which hwmon has what matters.
	{2, 0, 0, []metricsField{{temperatureEdge, 16, 2, 0.01}}},
	{2, 1, 4, []metricsField{{temperatureEdge, 4, 2, 0.01}}},
	{3, 0, 0, []metricsField{{temperatureEdge, 4, 2, 0.01}, {utilization, 42, 2, 1}, {media, 44, 2, 1}}},
}

// parseMetrics takes from the structure what g does not have yet. One that is
// shorter than it says, or of a form that is not known, says nothing.
func parseMetrics(b []byte, g *gpu) (known bool) {
	if len(b) < metricsHeader || int(binary.LittleEndian.Uint16(b)) > len(b) {
		return false
	}
	b = b[:max(metricsHeader, int(binary.LittleEndian.Uint16(b)))]
	for i := range metricsForms {
		form := &metricsForms[i]
		if form.format != b[2] || b[3] < form.first || b[3] > form.last {
			continue
		}
		for _, f := range form.fields {
			if f.offset+f.size <= len(b) && !g.has[f.reading] {
				f.take(b[f.offset:], g)
			}
		}
		return true
	}
	return false
}

func (f metricsField) take(b []byte, g *gpu) {
	if f.size == 8 {
		if n := binary.LittleEndian.Uint64(b); n != 1<<64-1 {
			g.integer(f.reading, uint64(float64(n)*f.times))
		}
		return
	}
	n := binary.LittleEndian.Uint16(b)
	switch {
	case n == 1<<16-1:
	case f.reading == clockGraphics, f.reading == clockMemory:
		g.integer(f.reading, uint64(n)*uint64(f.times))
	default:
		g.float(f.reading, float64(n)*f.times)
	}
}
