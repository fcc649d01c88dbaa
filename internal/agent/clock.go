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

// machineClock sleeps in ppoll(2): as exact as nanosleep, and the event file
// wakes it. The runtime's timers are late by half a millisecond on an idle
// machine and by tens of them while others of its goroutines compute.
type machineClock struct {
	event   [1]unix.PollFd
	timeout unix.Timespec
	read    [8]byte
}

func newMachineClock() (*machineClock, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return &machineClock{event: [1]unix.PollFd{{Fd: -1}}}, fmt.Errorf("make the tick loop's event file: %w", err)
	}
	return &machineClock{event: [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}}, nil
}

func (*machineClock) Mono() int64 { return host.Mono() }
func (*machineClock) Wall() int64 { return host.Wall() }

func (c *machineClock) Sleep(until int64) {
	var timeout *unix.Timespec
	length := int64(0)
	if until != 0 {
		length = max(0, until-c.Mono())
		c.timeout = unix.NsecToTimespec(length)
		timeout = &c.timeout
	}
	// An error is EINTR, and the sleep may end early.
	n, _ := c.poll(timeout, until != 0 && length < short)
	if n > 0 {
		_, _ = unix.Read(int(c.event[0].Fd), c.read[:]) // takes the Wakes back
	}
}

// short is a sleep of which the Go runtime is not told. It would take the
// processor away from the thread that sleeps, and its monitor would look for
// such threads every 20 us: at a tick a millisecond that takes as long as the
// ticks. The processor it keeps meanwhile is the one more that the agent has
// than the machine (main), and to stop the world takes as long at most.
const short = int64(2 * time.Millisecond)

func (c *machineClock) poll(timeout *unix.Timespec, untold bool) (n int, err error) {
	if !untold || runtime.GOMAXPROCS(0) == 1 {
		return unix.Ppoll(c.event[:], timeout, nil)
	}
	r, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&c.event[0])), uintptr(len(c.event)),
		uintptr(unsafe.Pointer(timeout)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(r), nil
}

// Wake must not be called after Close.
func (c *machineClock) Wake() {
	one := [8]byte{1} // in any byte order it is more than nothing
	_, _ = unix.Write(int(c.event[0].Fd), one[:])
}

func (c *machineClock) Close() error { return unix.Close(int(c.event[0].Fd)) }
