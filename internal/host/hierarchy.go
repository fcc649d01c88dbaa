// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"strings"
)

// Hierarchy is the mounted tree of control groups that CPU time is attributed
// to: the unified one (cgroup v2), or that of the v1 cpu controller where that
// is mounted, as on hybrid hosts.
type Hierarchy struct {
	Mount   string // "" when there is none
	Version int    // 1 or 2
	// CPUAcct is the mount of the v1 cpuacct controller, which need not be
	// that of the cpu controller ("": it is not mounted); the unified
	// hierarchy has its counters in the same tree.
	CPUAcct string
	// Unified is the mount of the unified hierarchy, or "". With version 1 it
	// makes the host a hybrid one.
	Unified string
	// V1Mounts are where the v1 controllers are mounted, by name (and by
	// every other option of their mounts).
	V1Mounts map[string]string
}

// Controller is where a controller counts: its own v1 mount on such hosts, or
// the unified hierarchy; "": nowhere.
func (h Hierarchy) Controller(name string) string {
	if h.V1() {
		return h.V1Mounts[name]
	}
	return h.Mount
}

// V1 tells that BPF programs must look at the task's cpu controller and not
// at its place in the unified hierarchy.
func (h Hierarchy) V1() bool { return h.Version == 1 }

// String is for people.
func (h Hierarchy) String() string {
	switch {
	case h.Mount == "":
		return "none mounted"
	case h.V1() && h.Unified != "":
		return fmt.Sprintf("hybrid: v1 cpu controller at %s, v2 at %s", h.Mount, h.Unified)
	case h.V1():
		return "v1 cpu controller at " + h.Mount
	}
	return "v2 at " + h.Mount
}

// CgroupMode finds the hierarchy in /proc/self/mounts.
func CgroupMode() Hierarchy {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return Hierarchy{}
	}
	return parseHierarchy(string(text))
}

// parseHierarchy takes the first mount of each kind: later ones of the same
// are made for containers.
func parseHierarchy(mounts string) Hierarchy {
	var unified string
	v1 := map[string]string{}
	first := func(to *string, mount string) {
		if *to == "" {
			*to = mount
		}
	}
	for m := range parseMounts(mounts) {
		switch m.kind {
		case "cgroup2":
			first(&unified, m.at)
		case "cgroup":
			for option := range strings.SplitSeq(m.options, ",") {
				if _, known := v1[option]; !known {
					v1[option] = m.at
				}
			}
		}
	}
	switch {
	case v1["cpu"] != "":
		return Hierarchy{Mount: v1["cpu"], Version: 1, CPUAcct: v1["cpuacct"], Unified: unified, V1Mounts: v1}
	case unified != "":
		return Hierarchy{Mount: unified, Version: 2, CPUAcct: unified, Unified: unified}
	}
	return Hierarchy{}
}
