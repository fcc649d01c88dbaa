// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Type is the type of a record.
type Type uint8

// The types of record. docs/format.md says what each holds.
const (
	TypeRun     Type = 1 // begins a chain: which agent, and how it records
	TypeSchema  Type = 2 // a schema and its number in the chain
	TypeTick    Type = 3 // one snapshot
	TypeGap     Type = 4 // ticks that are known to be missing, and why
	TypeEvent   Type = 5 // a line of text with a time
	TypeEnd     Type = 6 // the recording was closed
	TypeDict    Type = 7 // a schema that segments name by its hash
	TypeSegment Type = 8 // ticks in columns: what they are, and where in the blocks
	TypeBlock   Type = 9 // columns of the segment before it
)

// lastType is the last of them.
const lastType = TypeBlock

// Flags of a record.
const (
	flagSkip   byte = 1 << iota // a reader that does not know the type skips it
	flagKey                     // tick: previous words are zero
	flagZstd                    // the body is compressed
	flagGoesOn                  // end: another file goes on where this one ends
)

// A record is a head (recordHead bytes), a front that can be read and
// checked without the rest, and a body.
const (
	recordHead = 16
	maxFront   = 1<<16 - 1
	maxBody    = 64 << 20
)

// Record is one whole, checked record.
type Record struct {
	Type  Type
	Raw   []byte // the record as it is stored, valid until the next call
	flags byte
	front []byte
	body  []byte
}

// beginRecord makes room for a record's head and says where it is.
func beginRecord(dst []byte) ([]byte, int) {
	return append(dst, make([]byte, recordHead)...), len(dst)
}

// finishRecord fills in the head at at. The front ends, and the body
// begins, at body.
func finishRecord(dst []byte, at, body int, typ Type, flags byte) {
	h := dst[at : at+recordHead]
	h[0], h[1] = byte(typ), flags
	binary.LittleEndian.PutUint16(h[2:], uint16(body-at-recordHead))
	binary.LittleEndian.PutUint32(h[4:], uint32(len(dst)-body))
	binary.LittleEndian.PutUint32(h[8:], frontSum(h, dst[at+recordHead:body]))
	binary.LittleEndian.PutUint32(h[12:], checksum(dst[body:]))
}

// frontSum is the checksum of what is needed to find and index a record.
func frontSum(head, front []byte) uint32 {
	return crc32.Update(checksum(head[:8]), castagnoli, front)
}

// sizes are the lengths of front and body that a record's head states. They
// are to be believed only when the front's checksum holds.
func sizes(head []byte) (front, body int) {
	return int(binary.LittleEndian.Uint16(head[2:])), int(binary.LittleEndian.Uint32(head[4:]))
}

// parseFront checks head and front of the record that b begins with. The
// error is ErrTruncated, ErrCorrupt or ErrUnsupported.
func parseFront(b []byte) (Record, error) {
	if len(b) < recordHead {
		return Record{}, ErrTruncated
	}
	front, body := sizes(b)
	if b[0] == 0 || body > maxBody {
		return Record{}, fmt.Errorf("%w: no record here", ErrCorrupt)
	}
	if len(b) < recordHead+front {
		return Record{}, ErrTruncated
	}
	r := Record{Type: Type(b[0]), flags: b[1], front: b[recordHead : recordHead+front]}
	if frontSum(b, r.front) != binary.LittleEndian.Uint32(b[8:]) {
		return Record{}, fmt.Errorf("%w: checksum of a record's front", ErrCorrupt)
	}
	known := flagSkip
	switch r.Type {
	case TypeTick:
		known |= flagKey | flagZstd
	case TypeDict, TypeSegment, TypeBlock:
		known |= flagZstd
	case TypeEnd:
		known |= flagGoesOn
	}
	switch {
	case r.Type > lastType && r.flags&flagSkip == 0:
		return r, fmt.Errorf("%w: record type %d", ErrUnsupported, r.Type)
	case r.Type <= lastType && r.flags&^known != 0:
		return r, fmt.Errorf("%w: flags %#x of record type %d", ErrUnsupported, r.flags, r.Type)
	}
	return r, nil
}

// parseRecord checks the whole record that b begins with.
func parseRecord(b []byte) (Record, error) {
	r, err := parseFront(b)
	if err != nil {
		return r, err
	}
	front, body := sizes(b)
	start := recordHead + front
	if len(b) < start+body {
		return Record{}, ErrTruncated
	}
	r.Raw, r.body = b[:start+body], b[start:start+body]
	if checksum(r.body) != binary.LittleEndian.Uint32(b[12:]) {
		return r, fmt.Errorf("%w: checksum of a record's body", ErrCorrupt)
	}
	return r, nil
}

// Records reads a stream record by record without decoding it. A recorder
// that keeps the bytes of a stream needs no more.
type Records struct {
	r      io.Reader
	buf    []byte
	off    int64 // of the next record
	headed bool
}

// NewRecords returns a reader of the stream r, which begins with a header.
func NewRecords(r io.Reader) *Records { return &Records{r: r} }

// Next returns the next record, valid until the call after. The error is
// io.EOF at the end of a whole record, and otherwise ErrTruncated,
// ErrCorrupt, ErrUnsupported, ErrForeign or the reader's own. Nothing can be
// read after an error.
func (s *Records) Next() (Record, error) {
	if !s.headed {
		b, err := s.fill(0, headerSize)
		if err == nil || err == io.EOF {
			err = checkHeader(b)
		}
		if err != nil {
			return Record{}, err
		}
		s.headed, s.off = true, headerSize
	}
	b, err := s.fill(0, recordHead)
	if err == io.EOF && len(b) == 0 {
		return Record{}, io.EOF
	}
	front, body := 0, 0
	if err == nil {
		front, body = sizes(b)
		b, err = s.fill(recordHead, front)
	}
	if err == nil {
		// The length is believed once the front's checksum holds.
		if _, err = parseFront(b); err == nil {
			b, err = s.fill(recordHead+front, body)
		}
	}
	if err == io.EOF {
		err = ErrTruncated
	}
	var rec Record
	if err == nil {
		rec, err = parseRecord(b)
	}
	if err != nil {
		return Record{}, fmt.Errorf("record at byte %d: %w", s.off, err)
	}
	s.off += int64(len(b))
	return rec, nil
}

// fill reads n more bytes behind the first have in the buffer. It returns
// what there is with io.EOF when the stream ends before. Memory follows what
// arrives and not what a record claims.
func (s *Records) fill(have, n int) ([]byte, error) {
	const step = 1 << 20
	s.buf = s.buf[:have]
	for n > 0 {
		part := min(n, step)
		if cap(s.buf)-have < part {
			s.buf = append(s.buf, make([]byte, part)...)
		}
		s.buf = s.buf[:have+part]
		got, err := io.ReadFull(s.r, s.buf[have:])
		have, n = have+got, n-got
		if err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = io.EOF
			}
			return s.buf[:have], err
		}
	}
	return s.buf, nil
}
