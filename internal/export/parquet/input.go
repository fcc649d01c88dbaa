// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"

	"rezolus/internal/metric"
)

// maxGroupRows is how many rows of a row group are read at most: above what
// any writer makes of metrics, low enough that what a damaged file says does
// not take all memory.
const maxGroupRows = 1 << 22

// input is a column of a file.
type input struct {
	name   string
	number int   // of the column in the file
	leaf   *node // its column of values
	scale  int64
	desc   *metric.Desc
	values []string
	width  int // buckets in a row; 0: it is a scalar
}

func (in *input) damaged(err error) error {
	return fmt.Errorf("%w: column %q: %w", ErrDamaged, in.name, err)
}

// block is a column's part of a row group, one element a row.
type block struct {
	present []bool
	words   []uint64

	// A histogram's row i adds the steps step[end[i-1]:end[i]] to the row
	// before it.
	end  []int
	step []metric.Step
	was  []byte // a histogram's last row, eight bytes a bucket
	bad  uint64 // histograms that are not whole

	packed []byte // memory for what a Reader makes of it
}

var (
	errTooMany = errors.New("more rows than the row group has")
	errTooFew  = errors.New("fewer rows than the row group has")
)

// decode decodes a column's chunk. The steps of a histogram's first row are
// from what was has.
func (d *decoder) decode(f *File, in *input, c *chunkAt, rows int, out *block) error {
	if c == nil || c.size > f.size || c.offset > f.size-c.size {
		return in.damaged(errPage)
	}
	out.present, out.bad = resize(out.present, rows), 0
	clear(out.present)
	got := 0
	var err error
	if in.width == 0 {
		out.words = resize(out.words, rows)
		err = d.pages(f.r, c, in.leaf, func(p *page) (err error) {
			got, err = out.scalars(p, in.leaf.def, got)
			return err
		})
	} else {
		list := listing{block: out, width: in.width, def: in.leaf.def, limit: rows}
		if out.was == nil {
			out.was = make([]byte, 8*in.width)
		}
		out.end, out.step = out.end[:0], out.step[:0]
		if err = d.pages(f.r, c, in.leaf, list.page); err == nil {
			list.close(nil)
		}
		got = list.rows
	}
	if err == nil && got < rows {
		err = errTooFew
	}
	if err != nil {
		return in.damaged(err)
	}
	return nil
}

// scalars takes the values of a page from a row on.
func (b *block) scalars(p *page, largest, row int) (int, error) {
	plain := p.plain
	for _, r := range p.def {
		n := int(r.n)
		if n > len(b.words)-row {
			return row, errTooMany
		}
		if int(r.value) == largest {
			for i := row; i < row+n; i++ {
				b.present[i], b.words[i] = true, binary.LittleEndian.Uint64(plain[8*(i-row):])
			}
			plain = plain[8*n:]
		}
		row += n
	}
	return row, nil
}

// listing takes the rows of a column of lists.
type listing struct {
	*block
	width, def, limit int

	rows int    // rows begun
	null bool   // the open row is not a histogram
	part []byte // of the open row, what pages before this one have
}

// page takes a page: its entries, as far as levels stay the same.
func (l *listing) page(p *page) error {
	rest, from := p.plain, 0 // the open row began there
	at := 0
	def, rep := 0, 0
	var d, r run
	for left := p.entries; left > 0; {
		if d.n == 0 {
			d, def = p.def[def], def+1
		}
		if r.n == 0 {
			r, rep = p.rep[rep], rep+1
		}
		n := min(d.n, r.n)
		there := int(d.value) == l.def
		if r.value == 0 {
			n = 1
			l.close(rest[from:at])
			from = at
			if l.rows++; l.rows > l.limit {
				return errTooMany
			}
			l.null = d.value == 0
		} else if l.rows == 0 {
			return errors.New("a list that does not begin")
		}
		if there {
			at += 8 * int(n)
		} else if !l.null {
			l.null = true // an empty list, or one with holes
			l.bad++
		}
		d.n, r.n, left = d.n-n, r.n-n, left-int(n)
	}
	if len(l.part)+at-from > 8*l.width {
		from = at - 8*(l.width+1) // too long already
		from = max(from, 0)
	}
	l.part = append(l.part, rest[from:at]...)
	return nil
}

// close takes the open row, of which the present page has the end.
func (l *listing) close(end []byte) {
	if l.rows == 0 {
		return
	}
	row := end
	if len(l.part) > 0 {
		l.part = append(l.part, end...)
		row = l.part
	}
	if !l.null && len(row) != 8*l.width {
		l.null = true
		l.bad++
	}
	if !l.null {
		l.present[l.rows-1] = true
		l.differences(row)
	}
	l.part = l.part[:0]
	l.end = append(l.end, len(l.step))
}

// differences adds the steps to a row.
func (l *listing) differences(row []byte) {
	const at = 8 * stride
	for i := 0; i < len(row); {
		if i+at <= len(row) && [at]byte(row[i:]) == [at]byte(l.was[i:]) {
			i += at
			continue
		}
		for end := min(i+at, len(row)); i < end; i += 8 {
			now, was := binary.LittleEndian.Uint64(row[i:]), binary.LittleEndian.Uint64(l.was[i:])
			if now != was {
				l.step = append(l.step, metric.Step{Bucket: int32(i / 8), Add: int64(now - was)})
			}
		}
	}
	copy(l.was, row)
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
