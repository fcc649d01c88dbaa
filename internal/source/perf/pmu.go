// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/source"
)

// sysfs is where sysfs is mounted.
const sysfs = "/sys"

// pmu is a monitoring unit as the kernel shows it in
// /sys/bus/event_source/devices
// (Documentation/ABI/testing/sysfs-bus-event_source-devices-format).
type pmu struct {
	dir  string
	kind uint32 // for perf_event_attr.type
}

// readPMU finds the unit name; that there is none is source.ErrUnsupported.
func readPMU(sysfs, name string) (*pmu, error) {
	dir := filepath.Join(sysfs, "bus/event_source/devices", name)
	text, err := readText(filepath.Join(dir, "type"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, source.Unsupported("this machine has no %s PMU", name)
	}
	if err != nil {
		return nil, err
	}
	kind, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read type of PMU %s: %w", name, err)
	}
	return &pmu{dir, uint32(kind)}, nil
}

// cpus are those of the unit's file cpumask: where its events are opened.
func (p *pmu) cpus(file string) ([]int, error) {
	text, err := readText(filepath.Join(p.dir, file))
	if err != nil {
		return nil, err
	}
	return host.ParseCPUs(text)
}

// named is the event that the unit itself names so.
func (p *pmu) named(event string) (code, error) {
	terms, err := readText(filepath.Join(p.dir, "events", event))
	if err != nil {
		return code{}, err
	}
	return p.encode(terms)
}

// encode makes "event=0x04,umask=0xff" a code, by the unit's format files.
func (p *pmu) encode(terms string) (code, error) {
	var config [2]uint64
	for term := range strings.SplitSeq(terms, ",") {
		name, number, given := strings.Cut(term, "=")
		if !given {
			number = "1"
		}
		value, err := strconv.ParseUint(number, 0, 64)
		if err != nil {
			return code{}, fmt.Errorf("term %q of a perf event: %w", term, err)
		}
		text := name + ":0-63" // perf's own terms for a whole word
		if name != "config" && name != "config1" {
			if text, err = readText(filepath.Join(p.dir, "format", name)); err != nil {
				return code{}, err
			}
		}
		word, mask, err := parseFormat(text)
		if err != nil {
			return code{}, err
		}
		if bits.Len64(value) > bits.OnesCount64(mask) {
			return code{}, fmt.Errorf("term %q of a perf event does not fit into %s", term, text)
		}
		config[word] |= deposit(value, mask)
	}
	return code{p.kind, config[0], config[1]}, nil
}

// parseFormat reads "config:0-7,32-35": into which bits of which word a term
// goes, the lowest first.
func parseFormat(text string) (word int, mask uint64, err error) {
	name, list, _ := strings.Cut(text, ":")
	switch name {
	case "config":
	case "config1":
		word = 1
	default:
		return 0, 0, fmt.Errorf("format %q of a perf event: unknown word", text)
	}
	// Bits are listed as CPUs are.
	places, err := host.ParseCPUs(list)
	if err != nil || places[len(places)-1] > 63 {
		return 0, 0, fmt.Errorf("format %q of a perf event: bad bits", text)
	}
	for _, bit := range places {
		mask |= 1 << bit
	}
	return word, mask, nil
}

// deposit spreads the low bits of value over the ones of mask.
func deposit(value, mask uint64) (out uint64) {
	for ; mask != 0; mask &= mask - 1 {
		if value&1 != 0 {
			out |= mask & -mask
		}
		value >>= 1
	}
	return out
}

func readText(path string) (string, error) {
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

// place is where a group is opened.
type place struct {
	cpu int
	// pmu is the type of the unit: that of the CPU where there are several
	// (hybrid processors), or of a box outside the cores. 0: the only one.
	pmu uint32
}

// at is c as it is opened at p.
func (c code) at(p place) code {
	switch {
	case p.pmu == 0:
	case c.kind == unix.PERF_TYPE_RAW:
		c.kind = p.pmu
	case runtime.GOARCH == "amd64" && (c.kind == unix.PERF_TYPE_HARDWARE || c.kind == unix.PERF_TYPE_HW_CACHE):
		c.config |= uint64(p.pmu) << unix.PERF_PMU_TYPE_SHIFT // since 5.13, as hybrid processors are
	}
	return c
}

// perCPU is each CPU with the unit that counts for it.
func perCPU(sysfs string, online []int, groups []group) []target {
	units := map[int]uint32{}
	// Units of some cores only have a file cpus: cpu_core, armv8_cortex_a72.
	files, _ := filepath.Glob(filepath.Join(sysfs, "bus/event_source/devices/*/cpus"))
	for _, file := range files {
		unit, err := readPMU(sysfs, filepath.Base(filepath.Dir(file)))
		if err != nil {
			continue
		}
		cpus, _ := unit.cpus("cpus")
		for _, cpu := range cpus {
			units[cpu] = unit.kind
		}
	}
	targets := make([]target, len(online))
	for i, cpu := range online {
		targets[i] = target{strconv.Itoa(cpu), []place{{cpu, units[cpu]}}, groups}
	}
	return targets
}
