// SPDX-License-Identifier: Apache-2.0

package cgroupfs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// readPath reads the file at path, which ends with 0, into buf and is what it
// says: a file of a cgroup is small. Files are opened for each read because a
// host with a thousand groups would hold ten thousand of them, each with a
// page in the kernel; an open costs some 2 us. It does not allocate, and so
// makes the calls by hand.
func readPath(path, buf []byte) ([]byte, error) {
	at := unix.AT_FDCWD
	fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(&path[0])), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return nil, errno
	}
	n, err := unix.Read(int(fd), buf)
	unix.Close(int(fd))
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}
