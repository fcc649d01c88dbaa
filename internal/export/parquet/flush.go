// SPDX-License-Identifier: Apache-2.0

package parquet

import "fmt"

// maxEncoders bounds how many columns are encoded at a time, and with it the
// memory on a machine of many processors.
const maxEncoders = 4

// flush writes the open row group, a column at a time; those that follow are
// encoded meanwhile.
func (w *Writer) flush() error {
	if w.rows == 0 {
		return nil
	}
	g := group{rows: w.rows, min: w.min, max: w.max, offset: w.out.n}
	var due []int
	for i, c := range w.columns {
		if c.n > 0 { // else it is null in all rows, as if it had come later
			due = append(due, i)
		}
	}
	var err error
	begun, last := 0, -1
	for k, i := range due {
		for ; err == nil && begun < min(k+len(w.encoders), len(due)); begun++ {
			c, e := w.columns[due[begun]], w.encoders[begun%len(w.encoders)]
			c.pad(w.rows)
			go e.run(&c.rows)
		}
		if k == begun {
			break // after an error, and all that was begun has ended
		}
		e := w.encoders[k%len(w.encoders)]
		<-e.done
		if err == nil {
			err = w.chunk(e)
		}
		g.add(i-last-1, &e.chunk)
		last = i
		w.columns[i].next()
	}
	w.groups = append(w.groups, g)
	w.rows = 0
	return err
}

// run encodes a column and says so.
func (e *encoder) run(r *rows) {
	e.encode(r)
	e.done <- struct{}{}
}

// chunk writes what an encoder made.
func (w *Writer) chunk(e *encoder) error {
	if e.err != nil {
		return e.err
	}
	if _, err := w.out.Write(e.out); err != nil {
		return fmt.Errorf("write Parquet: %w", err)
	}
	return nil
}

// needNulls writes the chunks of nulls that a row group needs, unless
// another group of as many rows has them: a chunk may stand anywhere in the
// file, and that of one column is that of any.
func (w *Writer) needNulls(g *group) error {
	return g.each(len(w.columns), func(i int, k *chunk) error {
		c := w.columns[i]
		key := nullKey{c.typ == histogram, g.rows}
		if _, ok := w.nulls[key]; ok || k != nil {
			return nil
		}
		none := rows{typ: c.typ}
		none.pad(g.rows)
		e := w.encoders[0]
		e.encode(&none)
		e.chunk.offset = w.out.n
		w.nulls[key] = e.chunk
		return w.chunk(e)
	})
}
