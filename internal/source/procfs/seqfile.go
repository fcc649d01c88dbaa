// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// seqFile is a file of /proc that the kernel makes record by record. A read of
// such a file ends at the last whole record that fits in a page, whatever the
// size of the buffer (fs/seq_file.c, seq_read_iter), so only a read that gives
// nothing is its end. source.File is for the files that are one record.
type seqFile struct {
	f   *os.File
	buf []byte
}

func openSeqFile(path string) (*seqFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &seqFile{f, make([]byte, 8<<10)}, nil
}

// Read is the whole file, valid until the next Read.
func (p *seqFile) Read() ([]byte, error) {
	for at := 0; ; {
		if at == len(p.buf) {
			p.buf = append(p.buf, make([]byte, len(p.buf))...)
		}
		n, err := unix.Pread(int(p.f.Fd()), p.buf[at:], int64(at))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", p.f.Name(), err)
		case n == 0:
			return p.buf[:at], nil
		}
		at += max(n, 0)
	}
}

// Close closes the file.
func (p *seqFile) Close() error { return p.f.Close() }
