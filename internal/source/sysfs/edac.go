// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"path/filepath"
	"strconv"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/source"
)

var (
	edacErrors = &metric.Desc{Name: "edac_errors", Help: "errors of the memory behind a controller, corrected or not, those of unknown place too",
		Kind: metric.Counter, Keys: []string{"controller", "driver", "type"}, Sampler: "edac"}
	edacUnknown = &metric.Desc{Name: "edac_unlocated_errors", Help: "errors of the memory behind a controller of which it is not known where they were; edac_errors has them too",
		Kind: metric.Counter, Keys: []string{"controller", "driver", "type"}, Sampler: "edac"}
	edacRowErrors = &metric.Desc{Name: "edac_csrow_errors", Help: "errors of a chip-select row of memory",
		Kind: metric.Counter, Keys: []string{"controller", "csrow", "type"}, Sampler: "edac"}
	edacModuleErrors = &metric.Desc{Name: "edac_dimm_errors", Help: "errors of a memory module or rank",
		Kind: metric.Counter, Keys: []string{"controller", "dimm", "label", "type"}, Sampler: "edac"}
)

// edacSampler is that of the memory controllers (Documentation/admin-guide/
// RAS, Documentation/ABI/testing/sysfs-devices-edac).
func edacSampler(root string) source.Sampler {
	dir := filepath.Join(root, "sys/devices/system/edac/mc")
	return source.Sampler{
		Name: "edac", Reads: "/sys/devices/system/edac/mc", Needs: "CONFIG_EDAC, ECC memory and the driver of its controller",
		Every: 10 * time.Second,
		Descs: []*metric.Desc{edacErrors, edacUnknown, edacRowErrors, edacModuleErrors},
		Open: func() (source.Source, error) {
			return openTree("edac", func() []attribute { return findControllers(dir) },
				"no memory controller in /sys/devices/system/edac/mc: the memory has no ECC, its driver is not loaded, or this is a virtual machine")
		},
	}
}

// errorTypes are the kinds of error and how file names begin with them.
var errorTypes = []struct{ file, label string }{{"ce", "corrected"}, {"ue", "uncorrected"}}

func findControllers(dir string) []attribute {
	var found []attribute
	add := func(desc *metric.Desc, path string, values ...string) {
		if exists(path) {
			found = append(found, attribute{path: path, desc: desc, values: values})
		}
	}
	for _, n := range numbered(dir, "mc") {
		name := "mc" + strconv.Itoa(n)
		at, driver := filepath.Join(dir, name), text(dir, name, "mc_name")
		for _, t := range errorTypes {
			add(edacErrors, filepath.Join(at, t.file+"_count"), name, driver, t.label)
			add(edacUnknown, filepath.Join(at, t.file+"_noinfo_count"), name, driver, t.label)
			for _, row := range numbered(at, "csrow") {
				csrow := "csrow" + strconv.Itoa(row)
				add(edacRowErrors, filepath.Join(at, csrow, t.file+"_count"), name, csrow, t.label)
			}
			// A controller shows modules or, where it knows no modules,
			// ranks.
			for _, kind := range []string{"dimm", "rank"} {
				for _, module := range numbered(at, kind) {
					dimm := kind + strconv.Itoa(module)
					add(edacModuleErrors, filepath.Join(at, dimm, "dimm_"+t.file+"_count"),
						name, dimm, text(at, dimm, "dimm_label"), t.label)
				}
			}
		}
	}
	return found
}
