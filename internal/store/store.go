// SPDX-License-Identifier: Apache-2.0

// Package store keeps ticks: in a recording (a .rzr file, Writer and
// Recording), on the wire (Encoder and Decoder: the bytes of a stream are
// the bytes of a file) and in memory (Window). docs/format.md describes
// every byte.
//
// It stores what it is given, exactly, and says what it could not keep or
// read. It knows nothing of where ticks come from, of query languages or of
// other file formats.
package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Version is the version of the format this package reads and writes.
const Version = 1

// What can be wrong with bytes that should be a recording.
var (
	// ErrCorrupt: bytes that were not written by an encoder as they are.
	ErrCorrupt = errors.New("corrupt recording")
	// ErrTruncated: the bytes stop inside a record. What came before is good.
	ErrTruncated = errors.New("truncated recording")
	// ErrUnsupported: a version or a record this package does not know and
	// must not skip. A newer rezolus reads it.
	ErrUnsupported = errors.New("made by a newer rezolus")
	// ErrForeign: not a recording at all. The message says what it is.
	ErrForeign = errors.New("not a rezolus recording")
)

// The file header: magic, version, reserved, checksum. Like PNG's, the magic
// begins with a byte that is not ASCII and has both line ends, so that a
// transfer that changes text is noticed.
const (
	magic      = "\x89RZR\r\n\x1a\n"
	headerSize = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendHeader(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint16(dst, Version)
	dst = binary.LittleEndian.AppendUint16(dst, 0)
	return binary.LittleEndian.AppendUint32(dst, checksum(dst[at:]))
}

// checkHeader reports what is wrong with the first bytes of a file: nothing,
// or one of the four errors. Fewer bytes than a header are enough to see
// that a file is foreign.
func checkHeader(b []byte) error {
	n := min(len(b), len(magic))
	if string(b[:n]) != magic[:n] {
		return fmt.Errorf("%w: %s", ErrForeign, guess(b))
	}
	if len(b) < headerSize {
		return fmt.Errorf("%w: %d of the %d bytes of the header", ErrTruncated, len(b), headerSize)
	}
	if checksum(b[:12]) != binary.LittleEndian.Uint32(b[12:]) {
		return fmt.Errorf("%w: checksum of the header", ErrCorrupt)
	}
	if v := binary.LittleEndian.Uint16(b[8:]); v != Version {
		return fmt.Errorf("%w: format version %d, this one reads version %d", ErrUnsupported, v, Version)
	}
	return nil
}

// guess names a foreign file by its first bytes.
func guess(b []byte) string {
	for _, known := range []struct{ magic, say string }{
		{"PAR1", "a Parquet file (convert it first, or give it the name it has: .parquet)"},
		{"\x28\xb5\x2f\xfd", "a zstd file (decompress it first)"},
		{"\x1f\x8b", "a gzip file (decompress it first)"},
		{"SQLite format 3\x00", "an SQLite database"},
		{"PK\x03\x04", "a zip archive"},
		{"{", "JSON text"},
		{"# HELP", "Prometheus text"},
	} {
		if len(b) >= len(known.magic) && string(b[:len(known.magic)]) == known.magic {
			return "it is " + known.say
		}
	}
	return fmt.Sprintf("it begins with %q", b[:min(len(b), 8)])
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }
