// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// raw is a system call that the Go scheduler does not see: it makes no other
// calls around it. Blocking ones hold a P; tests afford that. What arguments
// point to must not lie on the stack, which may move as raw is called.
//
//go:uintptrescapes
func raw(number, a, b, c uintptr) uintptr {
	r, _, errno := syscall.RawSyscall6(number, a, b, c, 0, 0, 0)
	if errno != 0 {
		panic(fmt.Sprintf("system call %d: %v", number, errno))
	}
	return r
}

// Writes makes n system calls of class write: one byte each to /dev/null.
func Writes(n int) {
	fd, err := unix.Open("/dev/null", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	defer unix.Close(fd)
	var b byte
	for range n {
		raw(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b)), 1)
	}
}

// Sleeps makes n system calls of class sleep, each of duration d and with one
// voluntary context switch.
func Sleeps(n int, d time.Duration) {
	for range n {
		ts := unix.NsecToTimespec(int64(d))
		raw(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
	}
}

// Awaits makes n system calls of class ipc that wait for a semaphore in vain,
// each for d and with one voluntary context switch.
func Awaits(n int, d time.Duration) {
	set := raw(unix.SYS_SEMGET, unix.IPC_PRIVATE, 1, 0o600)
	defer raw(unix.SYS_SEMCTL, set, 0, unix.IPC_RMID)
	take := &struct {
		number    uint16
		op, flags int16
	}{op: -1}
	wait := unix.NsecToTimespec(int64(d))
	for range n {
		await(set, uintptr(unsafe.Pointer(take)), uintptr(unsafe.Pointer(&wait)))
	}
}

// await waits for one semaphore, and returns when the time is over.
//
//go:uintptrescapes
func await(set, op, wait uintptr) {
	if _, _, errno := syscall.RawSyscall6(unix.SYS_SEMTIMEDOP, set, op, 1, wait, 0, 0); errno != unix.EAGAIN && errno != unix.EINTR {
		panic(fmt.Sprintf("wait for a semaphore: %v", errno))
	}
}

// Forks makes n processes that exit at once and waits for each: 3n system
// calls of class process (clone, exit_group, wait4), and n tasks that die.
func Forks(n int) {
	for range n {
		// Without CLONE_VM the child has its own copy of everything and
		// makes one system call; nothing of the runtime runs in it.
		pid := raw(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0)
		if pid == 0 {
			syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		raw(unix.SYS_WAIT4, pid, 0, 0)
	}
}

// Burn runs on the CPU, in user mode, until the thread has used d of it.
// It is the CPU time used, in nanoseconds.
func Burn(d time.Duration) (used int64) {
	start := ThreadCPU()
	for used < int64(d) {
		for range 100_000 { // about 50 us: few clock calls
			sink++
		}
		used = ThreadCPU() - start
	}
	return used
}

var sink uint64

// ThreadCPU is the CPU time of the calling thread in nanoseconds, from
// CLOCK_THREAD_CPUTIME_ID.
func ThreadCPU() int64 {
	var ts unix.Timespec
	raw(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

// Pin lets the calling thread run on one CPU only; it is there on return.
func Pin(cpu int) {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		panic(fmt.Sprintf("pin to CPU %d: %v", cpu, err))
	}
}

// Hop moves the calling thread n times between two CPUs, beginning on a and
// ending there when n is even.
func Hop(n, a, b int) {
	Pin(a)
	for i := range n {
		if i%2 == 0 {
			Pin(b)
		} else {
			Pin(a)
		}
	}
}

// Switches is how often the calling thread gave up the CPU by itself and how
// often it was taken from it: voluntary_ctxt_switches and
// nonvoluntary_ctxt_switches of /proc/thread-self/status.
func Switches() (counts [2]uint64) {
	text, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(text)) {
		// A line that is not the one leaves the counts as they are.
		_, _ = fmt.Sscanf(line, "voluntary_ctxt_switches: %d", &counts[0])
		_, _ = fmt.Sscanf(line, "nonvoluntary_ctxt_switches: %d", &counts[1])
	}
	return counts
}

// Reborn makes a process that waits for the CPU of the calling thread, sleeps
// and dies, and then another with the same pid, which does the same.
func Reborn() {
	pid := born(0)
	Burn(5 * time.Millisecond)
	raw(unix.SYS_WAIT4, pid, 0, 0)
	raw(unix.SYS_WAIT4, born(pid), 0, 0)
}

// cloneArgs are those of clone3(2), and a pid that they point to.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
	tid                                                                                              int32
}

// born makes a process that sleeps for a millisecond and dies. Its pid is the
// given one, or any if that is 0.
func born(pid uintptr) uintptr {
	args := &cloneArgs{exitSignal: uint64(unix.SIGCHLD), tid: int32(pid)}
	if pid != 0 {
		args.setTID, args.setTIDSize = uint64(uintptr(unsafe.Pointer(&args.tid))), 1
	}
	nap := unix.Timespec{Nsec: 1e6}
	child := raw(unix.SYS_CLONE3, uintptr(unsafe.Pointer(args)), unsafe.Offsetof(args.tid), 0)
	if child == 0 {
		syscall.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&nap)), 0, 0)
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	return child
}
