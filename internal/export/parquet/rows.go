// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"encoding/binary"
	"math"
)

// rows are the rows of a column within the open row group, each as what
// changed since the one before it: a column of which little changes takes
// little, and only one column at a time is ever whole.
type rows struct {
	typ      physical
	required bool // no definition levels: a value in every row

	n      int      // rows so far
	last   []uint64 // words of the last one that is not null
	steps  []byte   // see put
	values bool     // whether one is not null
}

// Tokens of steps. All others are a scalar's difference in zigzag, or the
// number of buckets that changed, plus tokenValue.
const (
	tokenNulls = 0 // how many follows; none is the one difference that has no token
	tokenValue = 1
)

// pad makes the rows before row null where nothing was put.
func (r *rows) pad(row int) {
	if n := row - r.n; n > 0 {
		r.steps = binary.AppendUvarint(append(r.steps, tokenNulls), uint64(n))
		r.n = row
	}
}

// put puts the words of the next row: one, or those of a histogram.
func (r *rows) put(words ...uint64) {
	if r.last == nil {
		r.last = make([]uint64, len(words))
	}
	r.n++
	r.values = true
	if len(words) > 1 {
		r.buckets(words)
		return
	}
	z := zigzag(words[0] - r.last[0])
	r.last[0] = words[0]
	if z == math.MaxUint64 {
		r.steps = append(r.steps, tokenNulls, 0)
		return
	}
	r.steps = binary.AppendUvarint(r.steps, z+tokenValue)
}

// stride is how many words are compared at once.
const stride = 16

// buckets puts a histogram: how many buckets changed, and for each of them how
// far behind the one before it is, and by how much it changed.
func (r *rows) buckets(words []uint64) {
	at := len(r.steps)
	// The number is known at the end; it seldom takes more than a byte.
	r.steps = append(r.steps, 0)
	changed, before := uint64(0), 0
	for i := 0; i < len(words); {
		if i+stride <= len(words) && [stride]uint64(words[i:]) == [stride]uint64(r.last[i:]) {
			i += stride
			continue
		}
		for end := min(i+stride, len(words)); i < end; i++ {
			if d := words[i] - r.last[i]; d != 0 {
				r.steps = binary.AppendUvarint(r.steps, uint64(i-before))
				r.steps = binary.AppendUvarint(r.steps, zigzag(d))
				r.last[i], before = words[i], i
				changed++
			}
		}
	}
	var number [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(number[:], changed+tokenValue)
	if n > 1 {
		r.steps = append(r.steps, number[1:n]...)
		copy(r.steps[at+n:], r.steps[at+1:len(r.steps)-n+1])
	}
	copy(r.steps[at:], number[:n])
}

// next begins a row group. The memory of a column that had no value is given
// back: of the columns of a long recording most are of things that are gone.
func (r *rows) next() {
	fresh := rows{typ: r.typ, required: r.required}
	if r.values {
		clear(r.last)
		fresh.last, fresh.steps = r.last, r.steps[:0]
	}
	*r = fresh
}

// cursor goes through rows.
type cursor struct {
	steps []byte
	words []uint64 // of the present row, if it is not null
	fell  bool     // one of them is below what it was
}

// next goes over the rows that are null, and returns how many, or to the one
// that is not.
func (c *cursor) next() (nulls int) {
	t := c.uvarint()
	c.fell = false
	switch {
	case t == tokenNulls:
		if nulls = int(c.uvarint()); nulls == 0 {
			c.add(0, unzigzag(math.MaxUint64))
		}
	case len(c.words) == 1:
		c.add(0, unzigzag(t-tokenValue))
	default:
		for i := uint64(0); t > tokenValue; t-- {
			i += c.uvarint()
			c.add(i, unzigzag(c.uvarint()))
		}
	}
	return nulls
}

func (c *cursor) add(i, d uint64) {
	was := c.words[i]
	c.words[i] = was + d
	c.fell = c.fell || c.words[i] < was
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.steps)
	c.steps = c.steps[n:]
	return v
}

func zigzag(d uint64) uint64 { return d<<1 ^ uint64(int64(d)>>63) }

func unzigzag(z uint64) uint64 { return z>>1 ^ -(z & 1) }
