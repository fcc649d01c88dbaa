// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// run is a value, n times: of levels, or of indices into a dictionary.
type run struct {
	value uint32
	n     int32
}

var errRuns = errors.New("runs that end too early")

// appendRuns decodes n values of the hybrid of run lengths and packed bits
// (parquet-format, Encodings.md), of so many bits each.
func appendRuns(dst []run, b []byte, width uint, n int) ([]run, error) {
	push := func(v uint32, k int) {
		if last := len(dst) - 1; last >= 0 && dst[last].value == v {
			dst[last].n += int32(k)
		} else {
			dst = append(dst, run{v, int32(k)})
		}
		n -= k
	}
	for n > 0 {
		h, k := binary.Uvarint(b)
		if k <= 0 {
			return dst, errRuns
		}
		b = b[k:]
		if h&1 == 0 {
			size := int(width+7) / 8
			if len(b) < size || h == 0 {
				return dst, errRuns
			}
			v := uint32(0)
			for i := range size {
				v |= uint32(b[i]) << (8 * i)
			}
			b = b[size:]
			push(v, int(min(h>>1, uint64(n))))
			continue
		}
		groups := h >> 1
		if groups == 0 || width > 0 && groups > uint64(len(b)) {
			return dst, errRuns
		}
		// A writer may leave out the bytes of the last group that no value needs.
		k = int(min(groups*8, uint64(n)))
		size := min(int(groups)*int(width), len(b))
		if size*8 < k*int(width) {
			return dst, errRuns
		}
		held, have, at := uint64(0), uint(0), 0
		for range k {
			for have < width {
				held |= uint64(b[at]) << have
				at, have = at+1, have+8
			}
			push(uint32(held&(1<<width-1)), 1)
			held, have = held>>width, have-width
		}
		b = b[size:]
	}
	return dst, nil
}

// levelWidth is how many bits levels up to a largest one take.
func levelWidth(largest int) uint { return uint(bits.Len(uint(largest))) }
