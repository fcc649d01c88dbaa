// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// sleeper is a thread that wakes as often as ticks are due and does nothing
// else, scheduled as the agent's: what it misses, the machine takes away from
// everybody.
type sleeper struct {
	end    chan struct{}
	missed chan uint64
}

func startSleeper(interval time.Duration) *sleeper {
	s := &sleeper{make(chan struct{}), make(chan uint64, 1)}
	go s.run(interval)
	return s
}

func (s *sleeper) run(interval time.Duration) {
	runtime.LockOSThread() // it ends with the goroutine
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	_ = unix.SchedSetAttr(0, &attr, 0) // without it, it sleeps as everybody does
	missed := uint64(0)
	for next := time.Now(); ; {
		select {
		case <-s.end:
			s.missed <- missed
			return
		default:
		}
		next = next.Add(interval)
		if left := time.Until(next); left > 0 {
			ts := unix.NsecToTimespec(int64(left))
			_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &ts, nil) // EINTR is a short sleep
		}
		if late := time.Since(next) / interval; late > 0 {
			missed += uint64(late)
			next = next.Add(late * interval)
		}
	}
}

// stop ends it and returns how many ticks it missed.
func (s *sleeper) stop() uint64 {
	close(s.end)
	return <-s.missed
}
