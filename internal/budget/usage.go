// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// processUsage is this process's: getrusage(2), and the second number of
// /proc/self/statm (proc(5)), which is what is resident now.
func processUsage() (Usage, error) {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return Usage{}, fmt.Errorf("getrusage: %w", err)
	}
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return Usage{}, err
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return Usage{}, fmt.Errorf("/proc/self/statm is %q", text)
	}
	pages, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		return Usage{}, fmt.Errorf("/proc/self/statm: %w", err)
	}
	return Usage{time.Duration(r.Utime.Nano() + r.Stime.Nano()), pages * uint64(unix.Getpagesize())}, nil
}
