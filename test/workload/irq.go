// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Datagrams sends n datagrams of one byte over the loopback interface, one
// after the other, to a socket that takes each before the next is sent. Each
// raises the software interrupt that receives packets.
func Datagrams(n int) {
	const any = 0
	receive, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	defer unix.Close(receive)
	to := unix.SockaddrInet4{Port: any, Addr: [4]byte{127, 0, 0, 1}}
	if err := unix.Bind(receive, &to); err != nil {
		panic(err)
	}
	at, err := unix.Getsockname(receive)
	if err != nil {
		panic(err)
	}
	send, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	defer unix.Close(send)
	if err := unix.Connect(send, at); err != nil {
		panic(err)
	}
	var b byte
	for range n {
		raw(unix.SYS_WRITE, uintptr(send), uintptr(unsafe.Pointer(&b)), 1)
		raw(unix.SYS_READ, uintptr(receive), uintptr(unsafe.Pointer(&b)), 1)
	}
}

// Unmaps maps, touches and unmaps a page n times; each unmapping flushes the
// page from the TLBs of the CPUs that this process runs on.
func Unmaps(n int) {
	for range n {
		r, _, errno := unix.RawSyscall6(unix.SYS_MMAP, 0, 4096, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE, ^uintptr(0), 0)
		if errno != 0 {
			panic(errno)
		}
		raw(unix.SYS_MUNMAP, r, 4096, 0)
	}
}
