// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// File is a file of /proc or /sys that is read again and again from its
// beginning. It stays open, so that a read is one pread. It is for files that
// the kernel makes as one record, as /proc/stat and all of /sys; others end a
// read after a page of records (fs/seq_file.c, seq_read_iter).
type File struct {
	f   *os.File
	buf []byte
}

// OpenFile opens the file at path.
func OpenFile(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &File{f, make([]byte, 4<<10)}, nil
}

// Read is the whole file, valid until the next Read. The buffer grows with the
// file and is then kept.
func (p *File) Read() ([]byte, error) {
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

// Close closes the file.
func (p *File) Close() error { return p.f.Close() }

// Number takes a decimal number and the blanks before it off the front of b.
func Number(b []byte) (n uint64, rest []byte, ok bool) {
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	i := 0
	for ; i < len(b) && '0' <= b[i] && b[i] <= '9'; i++ {
		n = n*10 + uint64(b[i]-'0')
	}
	return n, b[i:], i > 0
}
