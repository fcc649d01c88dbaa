// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// realtime lets the loop's thread go before the machine's other work while some
// consumer has ticks that are fine enough. On a machine with more to do than it
// has CPUs a thread waits for milliseconds, and ticks are lost just when there
// is something to see.
//
// It is the lowest of the realtime priorities (sched(7), SCHED_FIFO), and a
// tick leaves slow sources to the next after half of its interval (Agent.take).
// Where the kernel refuses it, for want of CAP_SYS_NICE or in a cgroup of v1
// without realtime, ticks are like anything else's.
type realtime struct {
	up  time.Duration // of intervals up to this; 0: of none
	on  atomic.Bool
	set func(bool) error // schedule, but for tests

	// The loop's own.
	raised  bool
	refused error
}

// follow is told the shortest interval that anybody has; 0: nobody has any. It
// returns an error once.
func (r *realtime) follow(least time.Duration) error {
	want := least > 0 && least <= r.up
	if want == r.raised || want && r.refused != nil {
		return nil
	}
	err := r.set(want)
	if err == nil {
		r.raised = want
		r.on.Store(want)
	} else if want {
		r.refused = err
	}
	return err
}

// schedule sets the policy of the calling thread, whose children are to have
// the usual one.
func schedule(fifo bool) error {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	if fifo {
		attr.Policy, attr.Priority = unix.SCHED_FIFO, 1
	}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("set the priority of fast ticks: %w", err)
	}
	return nil
}
