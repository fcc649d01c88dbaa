// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"rezolus/internal/metric"
)

var (
	dtlbMiss = counter("cpu_dtlb", "cpu_dtlb_miss", metric.None,
		"accesses that missed the data TLB: on AMD and ARM its first level (op all), on Intel all its levels", "op")
	dtlbAccess = counter("cpu_dtlb", "cpu_dtlb_access", metric.None, "accesses that looked into the data TLB", "op")
)

// processor says which microarchitecture it is, as /proc/cpuinfo does on x86.
type processor struct {
	vendor        string
	family, model int
}

// parseProcessor takes the first processor of /proc/cpuinfo.
func parseProcessor(text string) (p processor) {
	for line := range strings.Lines(text) {
		key, value, found := strings.Cut(line, ":")
		if !found {
			break
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "vendor_id":
			p.vendor = value
		case "cpu family":
			p.family, _ = strconv.Atoi(value)
		case "model":
			p.model, _ = strconv.Atoi(value)
		}
	}
	return p
}

// walks are the Intel models whose events DTLB_{LOAD,STORE}_MISSES have the
// mask MISS_CAUSES_A_WALK (0x01): Haswell, Broadwell, Skylake and what came of
// it. Ice Lake has that mask no more, and Golden Cove has other events.
var walks = []int{0x3c, 0x3f, 0x45, 0x46, 0x3d, 0x47, 0x4f, 0x56, 0x4e, 0x5e, 0x55, 0x8e, 0x9e, 0xa5, 0xa6}

func raw(config uint64) code { return code{kind: unix.PERF_TYPE_RAW, config: config} }

// Operations and results of PERF_COUNT_HW_CACHE_DTLB (perf_event_open(2)).
func dtlb(op, result uint64) code {
	return code{kind: unix.PERF_TYPE_HW_CACHE, config: unix.PERF_COUNT_HW_CACHE_DTLB | op<<8 | result<<16}
}

func dtlbEvents(string) ([]group, error) {
	if runtime.GOARCH == "arm64" {
		return dtlbOf("arm64", processor{}), nil
	}
	text, err := readText("/proc/cpuinfo")
	return dtlbOf(runtime.GOARCH, parseProcessor(text)), err
}

// dtlbOf are the events of a processor: its own where they are known to be
// what the metric says, else those that the kernel maps to. Misses and
// accesses of an operation are one group, so that their ratio is true.
func dtlbOf(arch string, p processor) []group {
	all := func(desc *metric.Desc, config uint64) event { return event{desc, "op", "all", raw(config)} }
	switch {
	case arch == "arm64":
		// L1D_TLB_REFILL and L1D_TLB are the same on every ARMv8 (Arm
		// Architecture Reference Manual, common events).
		return []group{{events: []event{all(dtlbMiss, 0x05), all(dtlbAccess, 0x25)}}}
	case (p.vendor == "AuthenticAMD" || p.vendor == "HygonGenuine") && p.family >= 0x17:
		// LsL1DTlbMiss of Zen, all page sizes. No event counts the accesses.
		return []group{{events: []event{all(dtlbMiss, 0xff45)}}}
	}
	loads, stores := dtlb(unix.PERF_COUNT_HW_CACHE_OP_READ, unix.PERF_COUNT_HW_CACHE_RESULT_MISS),
		dtlb(unix.PERF_COUNT_HW_CACHE_OP_WRITE, unix.PERF_COUNT_HW_CACHE_RESULT_MISS)
	if p.vendor == "GenuineIntel" && p.family == 6 && slices.Contains(walks, p.model) {
		loads, stores = raw(0x0108), raw(0x0149)
	}
	return []group{
		{events: []event{{dtlbMiss, "op", "load", loads},
			{dtlbAccess, "op", "load", dtlb(unix.PERF_COUNT_HW_CACHE_OP_READ, unix.PERF_COUNT_HW_CACHE_RESULT_ACCESS)}}},
		{events: []event{{dtlbMiss, "op", "store", stores},
			{dtlbAccess, "op", "store", dtlb(unix.PERF_COUNT_HW_CACHE_OP_WRITE, unix.PERF_COUNT_HW_CACHE_RESULT_ACCESS)}}},
	}
}
