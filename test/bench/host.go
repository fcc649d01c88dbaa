// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pongEnv tells the process that it is the other end of the pipe.
const pongEnv = "REZOLUS_BENCH_PONG"

// pin keeps the calling goroutine's thread on CPU 0.
func pin() {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(0)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		fmt.Fprintln(os.Stderr, "bench: pin to CPU 0:", err)
		os.Exit(1)
	}
}

func transfer(call uintptr, fd int, b *byte) bool {
	n, _, errno := syscall.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(b)), 1)
	return n == 1 && errno == 0
}

// pong answers every byte from file 3 on file 4 until file 3 ends.
func pong() {
	pin()
	var b byte
	for transfer(unix.SYS_READ, 3, &b) && transfer(unix.SYS_WRITE, 4, &b) {
	}
}

// pipe is a process at the other end of two pipes, on the same CPU.
type pipe struct {
	to, from *os.File
	cmd      *exec.Cmd
}

func startPipe() (*pipe, error) {
	childReads, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, childWrites, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p := &pipe{to: to, from: from, cmd: exec.Command("/proc/self/exe")}
	p.cmd.Env = append(os.Environ(), pongEnv+"=1", "GODEBUG=asyncpreemptoff=1", "GOGC=off")
	p.cmd.ExtraFiles = []*os.File{childReads, childWrites}
	err = p.cmd.Start()
	childReads.Close()
	childWrites.Close()
	return p, err
}

func (p *pipe) close() error {
	p.to.Close()
	p.from.Close()
	return p.cmd.Wait()
}

// rounds sends a byte there and back n times: each round is two switches with
// their wake-ups and four system calls. It is the time of half a round.
func (p *pipe) rounds(n int) time.Duration {
	to, from := int(p.to.Fd()), int(p.from.Fd())
	var b byte
	start := time.Now()
	for range n {
		if !transfer(unix.SYS_WRITE, to, &b) || !transfer(unix.SYS_READ, from, &b) {
			fmt.Fprintln(os.Stderr, "bench: the pipe broke")
			os.Exit(1)
		}
	}
	return time.Since(start) / time.Duration(2*n)
}

// getppid is the time of one of the cheapest system calls.
func getppid(n int) time.Duration {
	start := time.Now()
	for range n {
		syscall.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
	}
	return time.Since(start) / time.Duration(n)
}
