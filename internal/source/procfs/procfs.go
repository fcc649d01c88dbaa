// SPDX-License-Identifier: Apache-2.0

// Package procfs reads what the kernel counts in /proc: a file of this package
// and a source for a file there (/proc/stat: stat.go; /proc/meminfo would be
// meminfo.go), with the reading, here, apart from the parsing, there. A file
// is kept open and read with one pread, and parsed in place.
//
// It publishes what a file says and computes nothing that a query can.
package procfs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// file is a file of /proc that is read again and again from its beginning.
type file struct {
	f   *os.File
	buf []byte
}

func open(path string) (*file, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &file{f, make([]byte, 16<<10)}, nil
}

// read is the whole file, valid until the next read. The buffer grows with the
// file and is then kept.
func (p *file) read() ([]byte, error) {
	for {
		n, err := unix.Pread(int(p.f.Fd()), p.buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", p.f.Name(), err)
		}
		if n < len(p.buf) {
			return p.buf[:n], nil
		}
		p.buf = make([]byte, 2*len(p.buf))
	}
}

func (p *file) close() error { return p.f.Close() }

// number takes a decimal number and the blanks before it off the front of b.
func number(b []byte) (n uint64, rest []byte, ok bool) {
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	i := 0
	for ; i < len(b) && '0' <= b[i] && b[i] <= '9'; i++ {
		n = n*10 + uint64(b[i]-'0')
	}
	return n, b[i:], i > 0
}
