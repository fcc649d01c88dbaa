// SPDX-License-Identifier: Apache-2.0

package cgroupfs

import (
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// Hierarchies finds the tree of groups in which a controller counts.
type Hierarchies struct {
	V1    bool // the cpu controller is mounted as v1
	Limit int  // groups that a source reads at most; 0: 1,024
	// Groups are those of the hierarchy with the controller, and where it is
	// mounted; nil when it is mounted nowhere.
	Groups func(controller string) (groups Groups, mount string)
}

// Samplers are those of this package but for the CPU time, which cpu_usage
// has. A read of a file costs some 10 us, and far more where the kernel must first
// add up what its CPUs counted, so they are read every few seconds and hold up no
// tick.
func Samplers(h Hierarchies) []source.Sampler {
	sheet := func(name, controller, reads string, every time.Duration, v2, v1 []file) source.Sampler {
		files := v2
		if h.V1 {
			files = v1
		}
		return source.Sampler{Name: name, Reads: reads, Needs: "the " + controller + " controller", Every: every, Blocking: true, Descs: descs(v2, v1),
			Open: func() (source.Source, error) {
				groups, mount := h.find(controller)
				if groups == nil || files == nil {
					return nil, source.Unsupported("the %s controller of cgroups has no hierarchy that counts it", controller)
				}
				return newSheet(name, groups, mount, h.Limit, files), nil
			}}
	}
	return []source.Sampler{
		sheet(bandwidthSampler, "cpu", "cpu.stat, cpu.max", 2*time.Second, bandwidth, bandwidthV1),
		sheet(memorySampler, "memory", "memory.stat, memory.current, memory.events", 10*time.Second, memory, memoryV1),
		sheet(pidsSampler, "pids", "pids.current, pids.max, pids.events", 10*time.Second, pids, pids),
		sheet(pressureSampler, "pressure", "cpu.pressure, memory.pressure, io.pressure, irq.pressure", 10*time.Second, pressures, nil),
		{Name: ioSampler, Reads: "io.stat", Needs: "the io controller of the unified hierarchy", Every: 10 * time.Second, Blocking: true,
			Descs: []*metric.Desc{ioBytes, ioOperations, ioUnread}, Open: func() (source.Source, error) {
				groups, mount := h.find("io")
				if groups == nil || h.V1 {
					return nil, source.Unsupported("the counters of v1 stand still without a limit; cgroup_blockio_* are from the kernel's requests")
				}
				return newIO(groups, mount, h.Limit), nil
			}},
	}
}

func (h Hierarchies) find(controller string) (Groups, string) {
	if h.Groups == nil {
		return nil, ""
	}
	return h.Groups(controller)
}

// descs are the descriptions of files, each once.
func descs(lists ...[]file) (all []*metric.Desc) {
	seen := map[*metric.Desc]bool{}
	for _, files := range lists {
		for _, f := range files {
			for _, e := range f.fields {
				if !seen[e.desc] {
					seen[e.desc] = true
					all = append(all, e.desc)
				}
			}
		}
	}
	return all
}
