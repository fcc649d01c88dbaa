// SPDX-License-Identifier: Apache-2.0

// Package host tells about the machine: clocks, CPUs, the kernel's features,
// and which control groups there are. It reads /proc and /sys and changes
// nothing; it knows no metrics.
package host

import (
	"time"

	"golang.org/x/sys/unix"
)

// The same moment on both clocks. Go's own monotonic clock is
// CLOCK_MONOTONIC (runtime, nanotime1), read without a system call.
var bootTime, bootMono = time.Now(), clockMonotonic()

func clockMonotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("host: CLOCK_MONOTONIC: " + err.Error()) // POSIX has it everywhere
	}
	return ts.Nano()
}

// Mono is CLOCK_MONOTONIC in nanoseconds: the clock of BPF programs
// (bpf_ktime_get_ns) and of acquisition windows.
func Mono() int64 { return bootMono + int64(time.Since(bootTime)) }

// Wall is the time of day in Unix nanoseconds.
func Wall() int64 { return time.Now().UnixNano() }

// BootTime is when the machine started, in Unix nanoseconds by the present
// time of day.
func BootTime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("host: CLOCK_BOOTTIME: " + err.Error()) // Linux 2.6.39
	}
	return Wall() - ts.Nano()
}
