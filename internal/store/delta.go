// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"fmt"

	"rezolus/internal/metric"
)

// Limits that keep hostile bytes from making a reader allocate without bound.
const (
	// maxWords is for all live schemas of a chain: 32 MiB. A host with 512
	// CPUs and 1,024 cgroups has well under a million.
	maxWords   = 1 << 22
	maxSources = 1 << 12
	maxSchema  = 16 << 20 // bytes of one schema's encoding
)

// appendDeltas appends the words of a frame as tokens against those the slot
// has, and makes these equal to it. A token is the zig-zag difference of the
// next word as a uvarint, or 0 and the number of words that did not change.
// What follows the last token did not change.
//
// Most words of a tick do not change. Where the frame's stamps tell, they are
// not looked at: to bring them all into the CPU's caches would be most of what
// a fast tick costs.
func (sl *slot) appendDeltas(dst []byte, f *metric.Frame) []byte {
	told := len(f.Stamps) == len(sl.stamps)
	same := 0
	for block := range sl.stamps {
		at := block * metric.Block
		end := min(at+metric.Block, len(f.Values))
		stamp := uint64(0)
		if told {
			stamp = f.Stamps[block]
		}
		if stamp != 0 && stamp == sl.stamps[block] {
			same += end - at
			continue
		}
		sl.stamps[block] = stamp
		dst, same = appendBlock(dst, sl.prev[at:end], f.Values[at:end], same)
	}
	return dst
}

// appendBlock appends the tokens of some words behind same unchanged ones, and
// returns how many unchanged ones there are at the end. It compares eight at a
// time.
func appendBlock(dst []byte, prev, cur []uint64, same int) ([]byte, int) {
	prev = prev[:len(cur)]
	for i := 0; i < len(cur); {
		end := min(i+8, len(cur))
		if end == i+8 {
			a, b := (*[8]uint64)(cur[i:]), (*[8]uint64)(prev[i:])
			if (a[0]^b[0])|(a[1]^b[1])|(a[2]^b[2])|(a[3]^b[3])|
				(a[4]^b[4])|(a[5]^b[5])|(a[6]^b[6])|(a[7]^b[7]) == 0 {
				same += 8
				i = end
				continue
			}
		}
		for ; i < end; i++ {
			d := int64(cur[i] - prev[i])
			if d == 0 {
				same++
				continue
			}
			if same > 0 {
				dst = binary.AppendUvarint(append(dst, 0), uint64(same))
				same = 0
			}
			prev[i] = cur[i]
			dst = binary.AppendUvarint(dst, uint64(d)<<1^uint64(d>>63))
		}
	}
	return dst, same
}

// eachDelta calls f with every word that changed, in order, and by how much.
// The words are limited to n; f returns false to stop early, and what
// follows is then not checked.
func eachDelta(b []byte, n int, f func(i int, d uint64) bool) error {
	c := cursor{b: b}
	for i := 0; len(c.b) > 0; {
		z := c.uvarint()
		if z == 0 {
			same := c.uvarint()
			if c.bad || same == 0 || same > uint64(n-i) {
				break
			}
			i += int(same)
			continue
		}
		if i >= n {
			c.fail()
			break
		}
		if !f(i, z>>1^-(z&1)) {
			return nil
		}
		i++
	}
	if c.bad || len(c.b) > 0 {
		return fmt.Errorf("%w: words of a frame", ErrCorrupt)
	}
	return nil
}

// frameFront is what stands before the tokens of a frame in a tick's body.
type frameFront struct {
	number     uint64 // of the schema
	begin, end int64  // CLOCK_MONOTONIC
	lost       uint64
	words      []byte // the tokens
}

// nextFrame takes the next frame off a tick's body.
func nextFrame(c *cursor, mono int64) (f frameFront, err error) {
	f.number = c.uvarint()
	in := cursor{b: c.bytes(c.uvarint())}
	f.begin = mono + in.varint()
	f.end = f.begin + in.varint()
	f.lost = in.uvarint()
	f.words = in.b
	if c.bad || in.bad {
		return f, fmt.Errorf("%w: a tick's frame", ErrCorrupt)
	}
	return f, nil
}
