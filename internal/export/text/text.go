// SPDX-License-Identifier: Apache-2.0

// Package text writes ticks as CSV (RFC 4180) or as JSON lines: one row a
// tick and series, for spreadsheets, scripts and jq. It is for a selection;
// all of a recording is a hundred times smaller as Parquet.
//
// A row has its time twice: in RFC 3339 with nanoseconds, and as Unix
// nanoseconds. Words are written as they are: a counter is what was counted
// since its start, in its own unit. A series that is absent in a tick has no
// row. A histogram is either its buckets that are not empty, or quantiles of
// what was counted since the row before.
package text

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// Format is one of the two.
type Format int

// The formats.
const (
	CSV Format = iota
	JSONLines
)

// Options say what is written.
type Options struct {
	Format Format
	// Want chooses the series; all if nil.
	Want func(*metric.Series) bool
	// Quantiles, 0 to 1 and ascending, are written of histograms: the
	// largest value of the bucket that has it. If there are none the
	// buckets are written.
	Quantiles []float64
}

// Writer writes ticks. It is not safe for concurrent use.
type Writer struct {
	o       Options
	out     io.Writer
	buf     []byte
	rows    uint64
	begun   bool
	sources map[string]*source
}

// source is the rows of a source's schema.
type source struct {
	schema *metric.Schema
	rows   []row
}

// row is one series that is written.
type row struct {
	series *metric.Series
	middle []byte // what stands between the time and the value
	key    string
	before *before
}

// before is a histogram as of its last row.
type before struct {
	words []uint64
	start int64
	desc  *metric.Desc
}

// next is b for a series that may be the same one, with other slots; without
// words if it is not.
func (b *before) next(e *metric.Series) *before {
	n := &before{start: e.Start, desc: e.Desc}
	if b == nil || b.start != e.Start || b.desc.Kind != e.Desc.Kind || b.desc.Float != e.Desc.Float || b.desc.Power != e.Desc.Power {
		return n
	}
	n.words, _ = refit(b.words, b.desc.Slots, e.Desc.Slots)
	return n
}

// flushBytes is how much is collected before it is written out.
const flushBytes = 64 << 10

// stamp is RFC 3339 with all nine digits, so that texts sort as times do.
const stamp = "2006-01-02T15:04:05.000000000Z"

// NewWriter returns a writer to w. Close writes what is outstanding.
func NewWriter(w io.Writer, o Options) (*Writer, error) {
	for i, q := range o.Quantiles {
		if !(q >= 0 && q <= 1) || i > 0 && q <= o.Quantiles[i-1] {
			return nil, fmt.Errorf("quantiles %v: give numbers from 0 to 1 in ascending order", o.Quantiles)
		}
	}
	return &Writer{o: o, out: w, sources: map[string]*source{}}, nil
}

// Rows is how many rows were written, without the header.
func (w *Writer) Rows() uint64 { return w.rows }

// Put writes a tick.
func (w *Writer) Put(s *metric.Snapshot) error {
	if !w.begun && w.o.Format == CSV {
		w.header()
	}
	w.begun = true
	at := time.Unix(0, s.Wall).UTC()
	for i := range s.Frames {
		f := &s.Frames[i]
		have := w.sources[f.Schema.Source]
		if have == nil || have.schema != f.Schema {
			have = w.arrange(have, f.Schema)
			w.sources[f.Schema.Source] = have
		}
		for k := range have.rows {
			r := &have.rows[k]
			w.begin(at, s.Wall)
			w.buf = append(w.buf, r.middle...)
			words := f.Values[r.series.Off : r.series.Off+r.series.Desc.Words()]
			if w.o.Format == CSV {
				w.csv(r, words)
			} else {
				w.json(r, words)
			}
			w.rows++
			if err := w.flush(flushBytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close writes what is outstanding. A CSV without a row has its header.
func (w *Writer) Close() error {
	if !w.begun && w.o.Format == CSV {
		w.header()
		w.begun = true
	}
	return w.flush(1)
}

func (w *Writer) flush(enough int) error {
	if len(w.buf) < enough {
		return nil
	}
	_, err := w.out.Write(w.buf)
	w.buf = w.buf[:0]
	if err != nil {
		return fmt.Errorf("write text: %w", err)
	}
	return nil
}

// arrange makes the rows of a schema. A histogram that goes on keeps what it
// was as of its last row.
func (w *Writer) arrange(old *source, schema *metric.Schema) *source {
	known := map[string]*before{}
	if old != nil {
		for i := range old.rows {
			known[old.rows[i].key] = old.rows[i].before
		}
	}
	s := &source{schema: schema}
	for i := range schema.Series {
		e := &schema.Series[i]
		if w.o.Want != nil && !w.o.Want(e) {
			continue
		}
		r := row{series: e, middle: w.middle(e)}
		// Two lives of a series may be there at once.
		r.key = string(r.middle) + strconv.FormatInt(e.Start, 10)
		if e.Desc.Kind.Buckets() && len(w.o.Quantiles) > 0 {
			r.before = known[r.key].next(e)
		}
		s.rows = append(s.rows, r)
	}
	s.order()
	return s
}

// order puts lives of one series that are there at once in the order in which
// they began: their rows do not say more.
func (s *source) order() {
	lives := map[string][]int{}
	for i := range s.rows {
		k := string(s.rows[i].middle)
		all := append(lives[k], i)
		lives[k] = all
		for j := len(all) - 1; j > 0 && s.rows[all[j-1]].series.Start > s.rows[all[j]].series.Start; j-- {
			s.rows[all[j-1]], s.rows[all[j]] = s.rows[all[j]], s.rows[all[j-1]]
		}
	}
}

// begin writes the time, in both forms.
func (w *Writer) begin(at time.Time, ns int64) {
	if w.o.Format == CSV {
		w.buf = at.AppendFormat(w.buf, stamp)
		w.buf = append(w.buf, ',')
		w.buf = strconv.AppendInt(w.buf, ns, 10)
		return
	}
	w.buf = append(w.buf, `{"time":"`...)
	w.buf = at.AppendFormat(w.buf, stamp)
	w.buf = append(w.buf, `","time_ns":`...)
	w.buf = strconv.AppendInt(w.buf, ns, 10)
}

// middle is what is the same in every row of a series.
func (w *Writer) middle(e *metric.Series) []byte {
	if w.o.Format == CSV {
		return csvMiddle(e)
	}
	return jsonMiddle(e)
}

// since is what a histogram counted since its last row, and whether there
// was one.
func (r *row) since(words []uint64) ([]uint64, bool) {
	b := r.before
	if b.words == nil {
		b.words = slices.Clone(words)
		return nil, false
	}
	hist.Sub(b.words, words, b.words)
	counted := slices.Clone(b.words)
	copy(b.words, words)
	return counted, true
}

// appendWord writes the value of a counter or gauge.
func appendWord(b []byte, d *metric.Desc, word uint64) []byte {
	switch {
	case d.Kind == metric.Counter:
		return strconv.AppendUint(b, word, 10)
	case d.Float:
		return strconv.AppendFloat(b, d.Value(word), 'g', -1, 64)
	}
	return strconv.AppendInt(b, int64(word), 10)
}
