// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// Codecs that are read (parquet-format, Compression.md). That of brotli is
// not: no program for metrics writes it.
const (
	codecNone   = 0
	codecSnappy = 1
	codecGzip   = 2
	codecLZ4    = 7
)

// maxPage bounds the bytes of a page: far above what writers make, low enough
// that what a damaged file says does not take all memory.
const maxPage = 256 << 20

var errSize = errors.New("a page that decompresses to another size than it should")

// decompressor decompresses pages.
type decompressor struct {
	zstd *zstd.Decoder
	buf  []byte
}

// page decompresses what has size bytes then. The result is valid until the
// next.
func (d *decompressor) page(codec int64, b []byte, size int) ([]byte, error) {
	if codec == codecNone {
		if len(b) != size {
			return nil, errSize
		}
		return b, nil
	}
	if cap(d.buf) < size {
		d.buf = make([]byte, 0, size)
	}
	out, err := d.buf[:0], error(nil)
	switch codec {
	case codecZstd:
		if d.zstd == nil {
			if d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
				zstd.WithDecoderMaxMemory(maxPage)); err != nil {
				return nil, err
			}
		}
		out, err = d.zstd.DecodeAll(b, out)
	case codecSnappy:
		if n, e := s2.DecodedLen(b); e != nil || n != size {
			return nil, errSize
		}
		out, err = s2.Decode(out[:size], b)
	case codecGzip:
		out, err = gunzip(out, b, size)
	case codecLZ4:
		out, err = unLZ4(out, b, size)
	default:
		return nil, fmt.Errorf("compressed with codec %d, which is not read", codec)
	}
	if err == nil && len(out) != size {
		err = errSize
	}
	d.buf = out
	return out, err
}

func gunzip(dst, b []byte, size int) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return dst, err
	}
	buf := bytes.NewBuffer(dst)
	_, err = io.Copy(buf, io.LimitReader(r, int64(size)+1))
	return buf.Bytes(), err
}

var errLZ4 = errors.New("not an LZ4 block")

// unLZ4 decompresses a block (https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md).
func unLZ4(dst, b []byte, size int) ([]byte, error) {
	length := func(n int) (int, bool) {
		for more := n == 15; more; {
			if len(b) == 0 || n > size {
				return 0, false
			}
			n, more, b = n+int(b[0]), b[0] == 255, b[1:]
		}
		return n, true
	}
	for len(b) > 0 {
		token := b[0]
		b = b[1:]
		n, ok := length(int(token >> 4))
		if !ok || n > len(b) || len(dst)+n > size {
			return dst, errLZ4
		}
		dst, b = append(dst, b[:n]...), b[n:]
		if len(b) == 0 {
			break // the last sequence has literals only
		}
		if len(b) < 2 {
			return dst, errLZ4
		}
		back := int(b[0]) | int(b[1])<<8
		b = b[2:]
		if n, ok = length(int(token & 15)); !ok || back == 0 || back > len(dst) || len(dst)+n+4 > size {
			return dst, errLZ4
		}
		for range n + 4 {
			dst = append(dst, dst[len(dst)-back])
		}
	}
	return dst, nil
}
