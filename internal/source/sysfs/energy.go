// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/source"
)

var (
	raplEnergy = &metric.Desc{Name: "rapl_energy", Help: "energy that a power zone used since it was first read; a zone contains those below it, whose ids begin with its own",
		Unit: "microjoules", Kind: metric.Counter, Keys: []string{"id", "zone"}, Sampler: "rapl"}
	raplLimit = &metric.Desc{Name: "rapl_power_limit", Help: "power that a zone may use on average over a time: long_term, short_term",
		Unit: "watts", Kind: metric.Gauge, Float: true, Keys: []string{"constraint", "id", "zone"}, Sampler: "rapl"}
)

// raplSampler is that of the powercap zones (Documentation/power/powercap/
// powercap.rst, Documentation/ABI/testing/sysfs-class-powercap): Intel's and
// AMD's RAPL, and ARM's by the SCMI.
func raplSampler(root string) source.Sampler {
	dir := filepath.Join(root, "sys/class/powercap")
	return source.Sampler{
		Name: "rapl", Reads: "/sys/class/powercap", Needs: "CONFIG_INTEL_RAPL, or another driver of powercap zones",
		// The counter has 32 bits of some 15 or 61 uJ: at 1 kW it wraps
		// after a minute.
		Every: 5 * time.Second,
		Descs: []*metric.Desc{raplEnergy, raplLimit},
		Open: func() (source.Source, error) {
			return openTree("rapl", func() []attribute { return findZones(dir) },
				"no zone with energy_uj in /sys/class/powercap: load intel_rapl_msr, unless this is a virtual machine")
		},
	}
}

func findZones(dir string) []attribute {
	var found []attribute
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		at, id := filepath.Join(dir, e.Name()), e.Name()
		if !strings.Contains(id, ":") { // a control type, not a zone
			continue
		}
		zone := text(at, "name")
		if wraps, ok := integer([]byte(text(at, "max_energy_range_uj"))); ok && wraps > 0 {
			// The range is that of the counter with all bits set, which
			// is one step (61 uJ at most) less than the sum at which it
			// begins again.
			found = append(found, attribute{path: filepath.Join(at, "energy_uj"), desc: raplEnergy, values: []string{id, zone}, wraps: wraps})
		}
		for _, n := range numberedBetween(at, "constraint_", "_power_limit_uw") {
			name := text(at, "constraint_"+n+"_name")
			if name == "" {
				name = n
			}
			found = append(found, attribute{path: filepath.Join(at, "constraint_"+n+"_power_limit_uw"), desc: raplLimit,
				values: []string{name, id, zone}, scale: scale{per: 1e6}})
		}
	}
	return found
}

// numberedBetween lists what stands between prefix and suffix in the names of
// a folder.
func numberedBetween(dir, prefix, suffix string) []string {
	paths, err := filepath.Glob(filepath.Join(dir, prefix+"*"+suffix))
	if err != nil {
		return nil
	}
	for i, p := range paths {
		paths[i] = strings.TrimSuffix(strings.TrimPrefix(filepath.Base(p), prefix), suffix)
	}
	slices.Sort(paths)
	return paths
}
