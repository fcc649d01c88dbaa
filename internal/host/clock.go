// SPDX-License-Identifier: Apache-2.0

// Package host tells about the machine: clocks, CPUs, the kernel's features,
// and which control groups there are. It reads /proc and /sys and changes
// nothing; it knows no metrics.
package host

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The same moment by Go and by the kernel. Go's own monotonic clock is
// CLOCK_MONOTONIC (runtime, nanotime1), read without a system call, but from
// an origin that it does not tell.
var originGo, originMono, originError = origin()

// origin reads both clocks several times and keeps the reading that took
// least time; they are apart by at most the half of that.
func origin() (at time.Time, mono int64, within time.Duration) {
	within = time.Hour
	for range 16 {
		before := time.Now()
		now := clock(unix.CLOCK_MONOTONIC)
		if took := time.Since(before); took/2 < within {
			within = took / 2
			at, mono = before.Add(within), now
		}
	}
	return at, mono, within
}

func clock(id int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		panic("host: clock_gettime: " + err.Error()) // the clocks asked for are in every kernel since 2.6.39
	}
	return ts.Nano()
}

// Mono is CLOCK_MONOTONIC in nanoseconds: the clock of BPF programs
// (bpf_ktime_get_ns) and of acquisition windows. It makes no system call.
func Mono() int64 { return originMono + int64(time.Since(originGo)) }

// Wall is the time of day in Unix nanoseconds.
func Wall() int64 { return time.Now().UnixNano() }

// Slept is how long the machine has been suspended since it started, to ten
// milliseconds: the time between reading the two clocks is none that it slept.
func Slept() time.Duration {
	mono := clock(unix.CLOCK_MONOTONIC)
	return time.Duration(clock(unix.CLOCK_BOOTTIME) - mono).Truncate(10 * time.Millisecond)
}

// BootTime is when the machine started, in Unix nanoseconds. It is the same
// for the whole life of the process, however the time of day is set
// meanwhile, so that it can be the start of counters.
func BootTime() int64 { return bootTime() }

var bootTime = sync.OnceValue(func() int64 { return Wall() - clock(unix.CLOCK_BOOTTIME) })
