// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// rangeBuffer is how many bytes are copied at once where the kernel does not.
const rangeBuffer = 256 << 10

// CopyRange appends n bytes of src, from off on, to dst: within the kernel,
// where both are files of the operating system's and on one file system. One
// that can share blocks shares them, where off and the end of dst fall on a
// block.
func CopyRange(dst, src File, off, n int64) error {
	to, direct := dst.(osFile)
	from, also := src.(osFile)
	if direct && also {
		done, err := copyInKernel(to.File, from.File, off, n)
		if err != nil {
			return err
		}
		off, n = off+done, n-done
	}
	if n == 0 {
		return nil
	}
	got, err := io.CopyBuffer(struct{ io.Writer }{dst}, io.NewSectionReader(src, off, n), make([]byte, min(n, rangeBuffer)))
	if err == nil && got < n {
		err = io.ErrUnexpectedEOF // it was cut since
	}
	return err
}

// copyInKernel copies as much as the kernel can; it is no error if that is
// nothing.
func copyInKernel(to, from *os.File, off, n int64) (done int64, err error) {
	end, err := to.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	err = bothDescriptors(to, from, func(out, in int) error {
		// copy_file_range(2) refuses a file that is appended to.
		flags, err := unix.FcntlInt(uintptr(out), unix.F_GETFL, 0)
		if err == nil {
			_, err = unix.FcntlInt(uintptr(out), unix.F_SETFL, flags&^unix.O_APPEND)
		}
		for err == nil && done < n {
			k := 0
			k, err = unix.CopyFileRange(in, &off, out, &end, int(n-done), 0)
			switch {
			case errors.Is(err, unix.EINTR):
				err = nil
			case err == nil && k == 0:
				err = io.ErrUnexpectedEOF
			}
			done += int64(max(k, 0))
		}
		_, back := unix.FcntlInt(uintptr(out), unix.F_SETFL, flags)
		for _, cannot := range []error{unix.EXDEV, unix.EINVAL, unix.ENOSYS, unix.EOPNOTSUPP, unix.EPERM, unix.EBADF} {
			if errors.Is(err, cannot) {
				err = nil
			}
		}
		return errors.Join(err, back)
	})
	if err != nil {
		err = &os.PathError{Op: "copy_file_range", Path: to.Name(), Err: err}
	}
	return done, err
}

// bothDescriptors calls f with the descriptors of two files, which nobody can
// close meanwhile.
func bothDescriptors(a, b *os.File, f func(a, b int) error) error {
	first, err := a.SyscallConn()
	if err != nil {
		return err
	}
	var second syscall.RawConn
	if second, err = b.SyscallConn(); err != nil {
		return err
	}
	var inner, outer error
	err = first.Control(func(x uintptr) {
		outer = second.Control(func(y uintptr) { inner = f(int(x), int(y)) })
	})
	return errors.Join(err, outer, inner)
}
