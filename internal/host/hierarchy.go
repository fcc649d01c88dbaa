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
	// that of the cpu controller; the unified one has it in the same tree.
	CPUAcct string
}

// V1 tells that BPF programs must look at the task's cpu controller and not
// at its place in the unified hierarchy.
func (h Hierarchy) V1() bool { return h.Version == 1 }

// String is for people.
func (h Hierarchy) String() string {
	if h.Mount == "" {
		return "none mounted"
	}
	return fmt.Sprintf("v%d at %s", h.Version, h.Mount)
}

// CgroupMode finds the hierarchy in /proc/self/mounts.
func CgroupMode() Hierarchy {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return Hierarchy{}
	}
	return parseHierarchy(string(text))
}

func parseHierarchy(mounts string) Hierarchy {
	var v1, v2 Hierarchy
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		options := strings.Split(f[3], ",")
		switch f[2] {
		case "cgroup2":
			v2 = Hierarchy{Mount: unescape(f[1]), Version: 2, CPUAcct: unescape(f[1])}
		case "cgroup":
			for _, o := range options {
				switch o {
				case "cpu":
					v1.Mount, v1.Version = unescape(f[1]), 1
				case "cpuacct":
					v1.CPUAcct = unescape(f[1])
				}
			}
		}
	}
	if v1.Mount != "" {
		return v1
	}
	return v2
}

// unescape undoes the octal escapes of /proc/mounts (proc(5)).
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}
