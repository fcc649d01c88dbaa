// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
)

// Clock is time as the loop sees it.
type Clock interface {
	Mono() int64 // CLOCK_MONOTONIC
	Wall() int64 // Unix nanoseconds
	// Sleep returns soon after that moment of Mono (0: never), at Wake, or
	// for no reason at all. A Wake before it is not lost.
	Sleep(until int64)
	Wake()
	Close() error
}

// machineClock sleeps in ppoll(2) at the end of each sleep: as exact as
// nanosleep, and the event file wakes it. The runtime's timers are late by half
// a millisecond on an idle machine and by tens of them while others of its
// goroutines compute; they do for the time before.
type machineClock struct {
	event   [1]unix.PollFd
	timeout unix.Timespec
	read    [8]byte
	timer   *time.Timer
	wake    chan struct{}
}

func newMachineClock() (*machineClock, error) {
	c := &machineClock{event: [1]unix.PollFd{{Fd: -1, Events: unix.POLLIN}}, timer: time.NewTimer(time.Hour), wake: make(chan struct{}, 1)}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return c, fmt.Errorf("make the tick loop's event file: %w", err)
	}
	c.event[0].Fd = int32(fd)
	return c, nil
}

func (*machineClock) Mono() int64 { return host.Mono() }
func (*machineClock) Wall() int64 { return host.Wall() }

// exact is the end of a sleep, in ppoll, of which the Go runtime is not told.
// It would take the processor away from the thread that sleeps, and its
// monitor would look for such threads every 20 us: at a tick a millisecond
// that takes as long as the ticks. The processor that the loop keeps meanwhile
// is the one more that the agent has than the machine, and to stop the world
// takes a signal, which ends the sleep.
const exact = int64(2 * time.Millisecond)

// short is a sleep that is all exact: to hand the thread from a timer of the
// runtime to the loop and back takes three threads, each tick, and as long as
// ten of them (docs/journal/2026-11-21-fast-ticks.md). Of longer sleeps there
// are too few to keep the runtime's monitor awake for.
const short = int64(10 * time.Millisecond)

func (c *machineClock) Sleep(until int64) {
	if until == 0 {
		<-c.wake
		c.woken()
		return
	}
	if d := until - c.Mono(); d > short && !c.doze(d-exact) {
		return
	}
	c.timeout = unix.NsecToTimespec(max(0, until-c.Mono()))
	// An error is EINTR, and the sleep may end early.
	if c.poll() > 0 {
		c.woken()
	}
}

// doze sleeps for d in the runtime, or is false at a Wake.
func (c *machineClock) doze(d int64) bool {
	c.timer.Reset(time.Duration(d))
	select {
	case <-c.timer.C:
		return true
	case <-c.wake:
		c.woken()
		return false
	}
}

func (c *machineClock) poll() (n int) {
	if runtime.GOMAXPROCS(0) == 1 { // nobody else could run
		n, _ = unix.Ppoll(c.event[:], &c.timeout, nil)
		return n
	}
	r, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&c.event[0])), uintptr(len(c.event)),
		uintptr(unsafe.Pointer(&c.timeout)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(r)
}

// woken takes the Wakes back.
func (c *machineClock) woken() {
	_, _ = unix.Read(int(c.event[0].Fd), c.read[:])
	select {
	case <-c.wake:
	default:
	}
}

// Wake must not be called after Close.
func (c *machineClock) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
	one := [8]byte{1} // in any byte order it is more than nothing
	_, _ = unix.Write(int(c.event[0].Fd), one[:])
}

func (c *machineClock) Close() error {
	c.timer.Stop()
	return unix.Close(int(c.event[0].Fd))
}
