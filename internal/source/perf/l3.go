// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"rezolus/internal/metric"
	"rezolus/internal/source"
)

var (
	l3Access = &metric.Desc{Name: "cpu_l3_access", Help: "accesses to an L3 cache, by the cache's id (cache/index3/id of its CPUs)",
		Kind: metric.Counter, Keys: []string{"domain"}, Sampler: "cpu_l3"}
	l3Miss = &metric.Desc{Name: "cpu_l3_miss", Help: "accesses that an L3 cache could not serve, by the cache's id (cache/index3/id of its CPUs)",
		Kind: metric.Counter, Keys: []string{"domain"}, Sampler: "cpu_l3"}
)

// l3Events is how the units of an L3 cache are asked for its accesses and
// misses. Their events differ between models with the formats of their terms,
// so the first pair that a unit can say is the one.
type l3Events struct {
	units        string // pattern of their names
	access, miss string
}

var l3Known = []l3Events{
	// AMD, family 17h on, one cpumask entry a cache. The kernel counts for
	// all threads and slices where none are given (arch/x86/events/amd/uncore.c).
	{"amd_l3", "event=0x04,umask=0xff", "event=0x04,umask=0x01"},
	// Intel, a box for each slice of the cache. From Ice Lake on:
	// LLC_LOOKUP.ALL and TOR_INSERTS.IA_MISS with their wide masks.
	{"uncore_cha_*", "event=0x34,umask=0x1fffff", "event=0x35,umask=0xc001fe01"},
	// Skylake and Cascade Lake: LLC_LOOKUP.ANY in every state, and
	// TOR_INSERTS.IA_MISS with every opcode, wherever the memory is.
	{"uncore_cha_*", "event=0x34,umask=0x11,filter_state=0x3ff",
		"event=0x35,umask=0x21,filter_rem=1,filter_loc=1,filter_all_op=1,filter_nm=1,filter_not_nm=1"},
}

func l3Sampler() source.Sampler {
	return source.Sampler{Name: "cpu_l3", Reads: "perf events of amd_l3 or uncore_cha_*", Every: pace,
		Needs: "uncore PMUs: AMD since Zen, Intel servers since Skylake; not in most virtual machines",
		Descs: []*metric.Desc{l3Access, l3Miss, multiplexed},
		Open: func() (source.Source, error) {
			return openSource("cpu_l3", &machine{}, true, func([]int) ([]target, error) { return l3Targets(sysfs) })
		}}
}

// l3Targets are the L3 caches, each with all the units that count for it.
func l3Targets(sysfs string) ([]target, error) {
	because := source.Unsupported("this machine has no PMU amd_l3 or uncore_cha_*")
	for _, known := range l3Known {
		dirs, err := filepath.Glob(filepath.Join(sysfs, "bus/event_source/devices", known.units))
		if err != nil || len(dirs) == 0 {
			continue
		}
		targets, err := known.targets(sysfs, dirs)
		if err == nil {
			return targets, nil
		}
		because = source.Unsupported("its events are not known (%w)", err)
	}
	return nil, because
}

// targets are the caches of the units in dirs.
func (k l3Events) targets(sysfs string, dirs []string) ([]target, error) {
	var found []target
	for _, dir := range dirs {
		unit, err := readPMU(sysfs, filepath.Base(dir))
		if err != nil {
			return nil, err
		}
		access, err := unit.encode(k.access)
		if err != nil {
			return nil, err
		}
		miss, err := unit.encode(k.miss)
		if err != nil {
			return nil, err
		}
		cpus, err := unit.cpus("cpumask")
		if err != nil {
			return nil, err
		}
		// Boxes of one kind have the same formats: only the type differs.
		events := []group{{events: []event{{desc: l3Access, code: raw(0)}, {desc: l3Miss, code: raw(0)}}}}
		events[0].events[0].code.config, events[0].events[0].code.config1 = access.config, access.config1
		events[0].events[1].code.config, events[0].events[1].code.config1 = miss.config, miss.config1
		for _, cpu := range cpus {
			domain, err := l3ID(sysfs, cpu)
			if err != nil {
				return nil, err
			}
			i := slices.IndexFunc(found, func(t target) bool { return t.member == domain })
			if i < 0 {
				i = len(found)
				found = append(found, target{member: domain, groups: events})
			}
			found[i].places = append(found[i].places, place{cpu, unit.kind})
		}
	}
	return found, nil
}

// l3ID is the number of the L3 cache of a CPU. Where the kernel gives none
// there is one a package.
func l3ID(sysfs string, cpu int) (string, error) {
	dir := filepath.Join(sysfs, "devices/system/cpu", "cpu"+strconv.Itoa(cpu))
	id, err := readText(filepath.Join(dir, "cache/index3/id"))
	if errors.Is(err, os.ErrNotExist) {
		id, err = readText(filepath.Join(dir, "topology/physical_package_id"))
	}
	if err != nil {
		return "", fmt.Errorf("find the L3 cache of CPU %d: %w", cpu, err)
	}
	return id, nil
}
