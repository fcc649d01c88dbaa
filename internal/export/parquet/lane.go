// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"encoding/binary"

	"rezolus/internal/metric"
)

// lane is a column as it is read, row by row. Of the open row group it holds
// what a Writer does, which is what changed from row to row: words would take
// ten times as much, and most columns of a long file are of things that are
// gone.
type lane struct {
	*input
	cursor          // its words are those of the last row that had one
	held   []byte   // the steps of the open row group
	last   []uint64 // a scalar's last word that was decoded
	was    []byte
	there  bool // the present row is not null
	nulls  int  // rows from the present one on that are
	start  int64
	member bool // in the schema of its source
}

func newLane(in *input) *lane {
	l := &lane{input: in, cursor: cursor{words: make([]uint64, max(1, in.width))}, last: make([]uint64, 1)}
	if in.width > 0 {
		l.was = make([]byte, 8*in.width)
	}
	return l
}

// forget makes the next rows those behind a gap.
func (l *lane) forget() {
	clear(l.last)
	clear(l.words)
	clear(l.was)
}

// take takes a row group that was decoded.
func (l *lane) take(b *block) {
	h := &rows{steps: b.packed[:0], last: l.last}
	from := 0
	for i, there := range b.present {
		var steps []metric.Step
		if l.width > 0 {
			steps, from = b.step[from:b.end[i]], b.end[i]
		}
		if !there {
			continue
		}
		h.pad(i)
		switch {
		case l.width == 0:
			h.put(b.words[i])
		case l.width == 1 && len(steps) > 0:
			h.put(h.last[0] + uint64(steps[0].Add))
		case l.width == 1:
			h.put(h.last[0])
		default:
			h.changes(steps)
		}
	}
	h.pad(len(b.present))
	b.packed = h.steps
	if n := len(h.steps); cap(l.held) < n || cap(l.held) > 2*n {
		l.held = make([]byte, n)
	}
	l.held = append(l.held[:0], h.steps...)
	l.steps, l.nulls = l.held, 0
}

// changes puts the next row, a histogram of which this is what changed, in the
// order of its buckets.
func (r *rows) changes(steps []metric.Step) {
	r.n++
	r.steps = binary.AppendUvarint(r.steps, uint64(len(steps))+tokenValue)
	before := int32(0)
	for _, s := range steps {
		r.steps = binary.AppendUvarint(r.steps, uint64(s.Bucket-before))
		r.steps = binary.AppendUvarint(r.steps, zigzag(uint64(s.Add)))
		before = s.Bucket
	}
}

// turn goes to the next row.
func (l *lane) turn() {
	if l.nulls == 0 {
		l.nulls = l.next()
	}
	if l.there = l.nulls == 0; !l.there {
		l.nulls--
	}
}
