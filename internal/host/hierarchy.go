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
	var cpu, acct, unified string
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
				switch option {
				case "cpu":
					first(&cpu, m.at)
				case "cpuacct":
					first(&acct, m.at)
				}
			}
		}
	}
	switch {
	case cpu != "":
		return Hierarchy{Mount: cpu, Version: 1, CPUAcct: acct, Unified: unified}
	case unified != "":
		return Hierarchy{Mount: unified, Version: 2, CPUAcct: unified, Unified: unified}
	}
	return Hierarchy{}
}
