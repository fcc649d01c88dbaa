// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"errors"
	"fmt"
	"io"

	pq "github.com/parquet-go/parquet-go"

	"rezolus/internal/metric"
)

// maxGroupRows is how many rows of a row group are read at most: above what
// any writer makes of metrics, low enough that what a damaged file says does
// not take all memory.
const maxGroupRows = 1 << 22

// input is a column of a file, as far as it is read.
type input struct {
	name   string
	leaf   int // number of its column of values
	scale  int64
	desc   *metric.Desc
	values []string

	// Of the open row group, one element a row.
	present []bool
	words   []uint64

	// A histogram's row i adds the steps step[end[i-1]:end[i]] to now.
	maxDef int // definition level of an element that is there
	width  int // buckets in a row
	end    []int
	step   []metric.Step
	now    []uint64

	start  int64
	member bool   // in the schema of its source
	before uint64 // the word of the last row that had one
}

// load decodes the column's chunk of a row group, by way of buf. bad is how
// many cells were left out.
func (in *input) load(c pq.ColumnChunk, rows int, buf []pq.Value) (bad uint64, err error) {
	in.present = resize(in.present, rows)
	clear(in.present)
	take := in.scalar
	var list *listing
	if in.width > 0 {
		list = &listing{in: in, was: append([]uint64(nil), in.now...)}
		in.end, in.step = in.end[:0], in.step[:0]
		take = list.take
	} else {
		in.words = resize(in.words, rows)
	}
	pages := c.Pages()
	defer func() { err = errors.Join(err, pages.Close()) }()
	got := 0
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, in.damaged(err)
		}
		for values := page.Values(); ; {
			n, err := values.ReadValues(buf)
			if got, err = take(buf[:n], got, rows, err); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return 0, in.damaged(err)
			}
		}
		pq.Release(page)
	}
	if list != nil {
		got = list.finish()
		bad = list.bad
	}
	if got != rows {
		return 0, in.damaged(fmt.Errorf("%d rows where there should be %d", got, rows))
	}
	return bad, nil
}

func (in *input) damaged(err error) error {
	return fmt.Errorf("%w: column %q: %w", ErrDamaged, in.name, err)
}

var errTooMany = errors.New("more rows than the row group has")

// scalar takes values of a column of one word a row. It passes err on.
func (in *input) scalar(values []pq.Value, row, rows int, err error) (int, error) {
	if row+len(values) > rows {
		return row, errTooMany
	}
	for i := range values {
		if v := &values[i]; !v.IsNull() {
			in.present[row+i], in.words[row+i] = true, v.Uint64()
		}
	}
	return row + len(values), err
}

// listing takes the values of a column of histograms.
type listing struct {
	in   *input
	was  []uint64 // the last row that was whole
	row  []uint64 // the open row
	rows int      // rows begun
	null bool     // the open row is not a histogram
	bad  uint64
}

func (l *listing) take(values []pq.Value, _, rows int, err error) (int, error) {
	for i := range values {
		v := &values[i]
		if v.RepetitionLevel() == 0 {
			l.close()
			if l.rows++; l.rows > rows {
				return 0, errTooMany
			}
			l.row, l.null = l.row[:0], v.DefinitionLevel() == 0
		}
		switch {
		case l.rows == 0:
			return 0, errors.New("a list that does not begin")
		case v.DefinitionLevel() == l.in.maxDef && len(l.row) <= l.in.width:
			l.row = append(l.row, v.Uint64())
		case v.DefinitionLevel() != l.in.maxDef && !l.null:
			l.null = true // an empty list, or one with holes
			l.bad++
		}
	}
	return l.rows, err
}

// close takes the open row.
func (l *listing) close() {
	in := l.in
	if l.rows == 0 {
		return
	}
	if !l.null && len(l.row) != in.width {
		l.null = true
		l.bad++
	}
	if !l.null {
		in.present[l.rows-1] = true
		for i, w := range l.row {
			if w != l.was[i] {
				in.step = append(in.step, metric.Step{Bucket: int32(i), Add: int64(w - l.was[i])})
				l.was[i] = w
			}
		}
	}
	in.end = append(in.end, len(in.step))
}

func (l *listing) finish() int {
	l.close()
	return l.rows
}

// advance brings a histogram to a row, and reports whether a bucket fell.
func (in *input) advance(row int) (fell bool) {
	from := 0
	if row > 0 {
		from = in.end[row-1]
	}
	for _, s := range in.step[from:in.end[row]] {
		was := in.now[s.Bucket]
		in.now[s.Bucket] = was + uint64(s.Add)
		fell = fell || in.now[s.Bucket] < was
	}
	return fell
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
