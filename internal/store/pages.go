// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"io"

	"rezolus/internal/vfs"
)

// pages reads a file a large piece at a time.
type pages struct {
	f    vfs.File
	size int64
	step int // bytes to read at once, at least; 0: a lot
	buf  []byte
	off  int64 // of buf in the file
}

// at returns the n bytes at off, which lie within the file.
func (p *pages) at(off int64, n int) ([]byte, error) {
	page := p.step
	if page == 0 {
		page = 256 << 10
	}
	if off >= p.off && off+int64(n) <= p.off+int64(len(p.buf)) {
		return p.buf[off-p.off:][:n], nil
	}
	want := int(min(p.size-off, int64(max(n, page))))
	if cap(p.buf) < want {
		p.buf = make([]byte, want)
	}
	p.buf, p.off = p.buf[:want], off
	if got, err := p.f.ReadAt(p.buf, off); got < want {
		p.buf = p.buf[:0]
		if err == io.EOF { // it was cut since its size was taken
			return nil, ErrTruncated
		}
		return nil, fmt.Errorf("read recording: %w", err)
	}
	return p.buf[:n], nil
}

// record reads the record at off, without its body unless bodies is set.
// n is its length once its front is known to be good.
func (p *pages) record(off int64, bodies bool) (rec Record, n int64, err error) {
	left := p.size - off
	if left < recordHead {
		return rec, 0, ErrTruncated
	}
	b, err := p.at(off, recordHead)
	if err != nil {
		return rec, 0, err
	}
	front, body := sizes(b)
	if left < recordHead+int64(front) {
		return rec, 0, ErrTruncated
	}
	if b, err = p.at(off, recordHead+front); err != nil {
		return rec, 0, err
	}
	if rec, err = parseFront(b); err != nil {
		return rec, 0, err
	}
	n = int64(recordHead + front + body)
	if left < n {
		return rec, 0, ErrTruncated
	}
	if bodies || body == 0 {
		if b, err = p.at(off, int(n)); err != nil {
			return rec, 0, err
		}
		rec, err = parseRecord(b)
	}
	return rec, n, err
}

// resync looks for the next whole record from off on. What looks like one
// costs a checksum, so a file made to look so everywhere is given up on.
func (p *pages) resync(off int64) (int64, bool) {
	for budget := 4*(p.size-off) + 1<<20; off+recordHead <= p.size && budget > 0; off++ {
		b, err := p.at(off, recordHead)
		if err != nil {
			return 0, false
		}
		front, body := sizes(b)
		if b[0] == 0 || Type(b[0]) > lastType || body > maxBody || off+recordHead+int64(front)+int64(body) > p.size {
			continue
		}
		budget -= int64(front)
		if _, n, err := p.record(off, false); err == nil && n > 0 {
			return off, true
		}
	}
	return 0, false
}
