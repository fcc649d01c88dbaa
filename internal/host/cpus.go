// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Online lists the CPUs that run, ascending, from
// /sys/devices/system/cpu/online; where that cannot be read, as many as the
// process may use.
func Online() []int {
	if cpus, err := readCPUs("/sys/devices/system/cpu/online"); err == nil {
		return cpus
	}
	cpus := make([]int, runtime.NumCPU())
	for i := range cpus {
		cpus[i] = i
	}
	return cpus
}

// Possible is one more than the highest number a CPU of this machine can ever
// have, from /sys/devices/system/cpu/possible.
func Possible() int {
	if cpus, err := readCPUs("/sys/devices/system/cpu/possible"); err == nil {
		return cpus[len(cpus)-1] + 1
	}
	return runtime.NumCPU()
}

func readCPUs(file string) ([]int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return ParseCPUs(strings.TrimSpace(string(text)))
}

// ParseCPUs reads a list of CPUs such as "0-3,8" (cpuset(7), list format). It
// is ascending and not empty.
func ParseCPUs(list string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.ParseUint(first, 10, 16)
		to := from
		if err == nil && isRange {
			to, err = strconv.ParseUint(last, 10, 16)
		}
		if err != nil || to < from || len(cpus) > 0 && int(from) <= cpus[len(cpus)-1] {
			return nil, fmt.Errorf("list of CPUs %q: bad part %q", list, part)
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	return cpus, nil
}
