// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const cpuFolder = "sys/devices/system/cpu"

// processors reads /proc/cpuinfo and the topology that the kernel has of the
// CPUs that are online (Documentation/admin-guide/cputopology.rst).
func (m machine) processors(nodes []Node) CPUs {
	info := m.text("proc/cpuinfo")
	is := CPUs{
		Vendor: cpuinfo(info, "vendor_id", "CPU implementer"), Model: cpuinfo(info, "model name", "CPU part"), Microcode: cpuinfo(info, "microcode"),
		Governor: m.text(cpuFolder, "cpu0/cpufreq/scaling_governor"), Driver: m.text(cpuFolder, "cpu0/cpufreq/scaling_driver"),
		Idle: m.text(cpuFolder, "cpuidle/current_driver"),
	}
	online, err := ParseCPUs(m.text(cpuFolder, "online"))
	if err != nil {
		return is
	}
	nodeOf := map[int]int{}
	for _, n := range nodes {
		if cpus, err := ParseCPUs(n.CPUs); err == nil {
			for _, cpu := range cpus {
				nodeOf[cpu] = n.Node
			}
		}
	}
	type core struct{ pkg, die, core int }
	cores, packages := map[core]bool{}, map[int]bool{}
	for _, cpu := range online {
		at := filepath.Join(cpuFolder, "cpu"+strconv.Itoa(cpu), "topology")
		t := Thread{CPU: cpu, Core: m.number(-1, at, "core_id"), Die: m.number(-1, at, "die_id"), Package: m.number(-1, at, "physical_package_id"), Node: -1}
		if node, ok := nodeOf[cpu]; ok {
			t.Node = node
		}
		is.Topology = append(is.Topology, t)
		packages[t.Package] = true
		if t.Core >= 0 {
			cores[core{t.Package, t.Die, t.Core}] = true
		}
	}
	is.Threads, is.Sockets, is.Cores = len(online), len(packages), len(cores)
	if is.Cores == 0 { // it is not told: each may be a core
		is.Cores = is.Threads
	}
	is.SMT = is.Threads > is.Cores
	is.Caches = m.caches(online)
	return is
}

// cpuinfo is the first value of the first of the keys that /proc/cpuinfo has.
func cpuinfo(info string, keys ...string) string {
	for _, key := range keys {
		for line := range strings.Lines(info) {
			if k, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
				return strings.TrimSpace(value)
			}
		}
	}
	return ""
}

// caches gathers the caches of all CPUs, each once
// (Documentation/ABI/testing/sysfs-devices-system-cpu).
func (m machine) caches(online []int) []Cache {
	type kind struct {
		level       int
		kind        string
		bytes, line uint64
	}
	found := map[kind]*Cache{}
	for _, cpu := range online {
		dir := filepath.Join(cpuFolder, "cpu"+strconv.Itoa(cpu), "cache")
		for _, n := range m.numbered(dir, "index") {
			at := filepath.Join(dir, "index"+strconv.Itoa(n))
			size, err := strconv.ParseUint(strings.TrimSuffix(m.text(at, "size"), "K"), 10, 50)
			if err != nil {
				continue
			}
			k := kind{m.number(0, at, "level"), m.text(at, "type"), size << 10, uint64(max(0, m.number(0, at, "coherency_line_size")))}
			if found[k] == nil {
				found[k] = &Cache{Level: k.level, Type: k.kind, Bytes: k.bytes, Line: k.line}
			}
			if shared := m.text(at, "shared_cpu_list"); !slices.Contains(found[k].Shared, shared) {
				found[k].Shared = append(found[k].Shared, shared)
			}
		}
	}
	var all []Cache
	for _, c := range found {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b Cache) int {
		return cmp.Or(cmp.Compare(a.Level, b.Level), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Line, b.Line))
	})
	return all
}
