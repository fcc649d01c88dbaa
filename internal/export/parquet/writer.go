// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strconv"

	"rezolus/internal/metric"
)

// Bounds of a row group. The rows are the Rust implementation's; the cells
// bound what a reader takes for the scalars of one (64 MB), and the bytes
// what the writer holds: the differences from row to row.
const (
	groupRows    = 1800
	groupMinRows = 256
	groupCells   = 8 << 20
	groupBytes   = 12 << 20
)

// maxFacts bounds the entries kept of gaps and of lost events. Later ones
// are not in the file, and Written says how many.
const maxFacts = 1 << 16

// Options say how a file is written. The zero value is the wide form.
type Options struct {
	Form Form // Wide if empty
	// Windows adds two columns a source: when within the tick it was read.
	Windows bool
	// Metadata goes into the file's own, in place of what is there under
	// the same key: source, node, instance, systeminfo, or anything else.
	Metadata map[string]string
	// RowGroup is the most rows of a row group; 0 is 1,800.
	RowGroup int
}

// Written is what a file has.
type Written struct {
	Ticks   uint64
	Columns int
	Groups  int
	Bytes   int64
	// Dropped is how many entries about gaps and lost events were left out
	// because there were too many.
	Dropped uint64
}

// Writer writes ticks to one file. It is not safe for concurrent use.
type Writer struct {
	o        Options
	out      *counted
	encoders []*encoder // as many as columns are encoded at a time

	columns []*column
	named   *namer
	byName  map[string]*table
	tables  []*table
	live    map[*metric.Schema]*table

	rows     int   // of the open row group
	total    int64 // of all
	min, max int64 // times in the row group
	groups   []group
	nulls    map[nullKey]chunk

	facts    facts
	help     map[string]string
	events   []eventJSON
	last     tickState
	interval int64
	first    int64
	final    int64
	dropped  uint64
	err      error
}

// tickState is what the facts say of the row before.
type tickState struct {
	run      *metric.Run
	seq      uint64
	interval int64
	clock    int64
}

// group is a row group that is written. Columns that are not among its
// chunks are null in all of its rows.
type group struct {
	rows     int
	min, max int64
	offset   int64 // of the first chunk; each of the others follows the one before
	chunks   []byte
}

// chunk is where in the file a column of a row group is.
type chunk struct {
	offset int64
	size   int64
	raw    int64
	values int64
}

// add keeps a chunk until the footer is written, in some eight bytes: a week
// has millions of them.
func (g *group) add(skipped int, k *chunk) {
	for _, v := range [...]int64{int64(skipped), k.size, k.raw, k.values} {
		g.chunks = binary.AppendUvarint(g.chunks, uint64(v))
	}
}

// each yields the chunk of each of so many columns, nil where the group has
// none.
func (g *group) each(columns int, yield func(i int, k *chunk) error) error {
	rest, at, due := g.chunks, g.offset, -1
	take := func() int64 {
		v, n := binary.Uvarint(rest)
		rest = rest[n:]
		return int64(v)
	}
	for i := range columns {
		if due < i && len(rest) > 0 {
			due = i + int(take())
		}
		var k *chunk
		if due == i {
			k = &chunk{offset: at, size: take(), raw: take(), values: take()}
			at += k.size
		}
		if err := yield(i, k); err != nil {
			return err
		}
	}
	return nil
}

// nullKey are the things on which a chunk of nulls depends.
type nullKey struct {
	list bool
	rows int
}

// counted counts what is written to a writer.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

const magic = "PAR1"

// NewWriter begins a file. Nothing of it can be read before Close.
func NewWriter(w io.Writer, o Options) (*Writer, error) {
	if o.Form == "" {
		o.Form = Wide
	}
	if o.RowGroup <= 0 {
		o.RowGroup = groupRows
	}
	out := &Writer{o: o, out: &counted{w: w}, named: newNamer(o.Form),
		byName: map[string]*table{}, live: map[*metric.Schema]*table{},
		nulls: map[nullKey]chunk{}, help: map[string]string{},
		facts: facts{Version: factsVersion, Form: o.Form}}
	time := column{name: columnTimestamp, unit: string(metric.Nanoseconds),
		meta: map[string]string{keyType: "timestamp"}, rows: rows{typ: uint64s, required: true}}
	if o.Form == Tidy {
		time.name, time.typ = columnTime, instants
	}
	duration := column{name: columnDuration, unit: string(metric.Nanoseconds),
		meta: map[string]string{keyType: "duration"}, rows: rows{typ: uint64s}}
	for range min(runtime.GOMAXPROCS(0), maxEncoders) {
		out.encoders = append(out.encoders, &encoder{done: make(chan struct{})})
	}
	out.addColumn(&time)
	out.addColumn(&duration)
	if _, err := io.WriteString(out.out, magic); err != nil {
		return nil, fmt.Errorf("write Parquet: %w", err)
	}
	return out, nil
}

func (w *Writer) addColumn(c *column) int {
	if c.unit != "" {
		c.meta[keyUnit] = c.unit
	}
	w.columns = append(w.columns, c)
	return len(w.columns) - 1
}

// Put writes a tick. Times of ticks need not ascend. After an error the file
// is lost.
func (w *Writer) Put(s *metric.Snapshot) error {
	if w.err != nil {
		return w.err
	}
	w.err = w.put(s)
	return w.err
}

func (w *Writer) put(s *metric.Snapshot) error {
	w.note(s)
	w.columns[0].put(uint64(s.Wall))
	var begin, end int64
	for i := range s.Frames {
		f := &s.Frames[i]
		if i == 0 || f.Begin < begin {
			begin = f.Begin
		}
		end = max(end, f.End)
		if err := w.frame(s, f); err != nil {
			return err
		}
	}
	if len(s.Frames) > 0 {
		w.scalar(1, uint64(max(end-begin, 0)))
	}
	w.rows++
	w.total++
	if w.full() {
		return w.flush()
	}
	return nil
}

// scalar puts a word into the present row.
func (w *Writer) scalar(column int, word uint64) {
	c := w.columns[column]
	c.pad(w.rows)
	c.put(word)
}

func (w *Writer) full() bool {
	if w.rows >= w.o.RowGroup {
		return true
	}
	if w.rows < groupMinRows {
		return false
	}
	if w.rows*len(w.columns) >= groupCells {
		return true
	}
	if w.rows%64 != 0 {
		return false
	}
	bytes := 0
	for _, c := range w.columns {
		bytes += len(c.steps)
	}
	return bytes >= groupBytes
}

func (w *Writer) frame(s *metric.Snapshot, f *metric.Frame) error {
	t := w.live[f.Schema]
	if t == nil || t.schema != f.Schema {
		if t = w.byName[f.Schema.Source]; t == nil {
			t = w.source(f.Schema.Source)
		}
		w.change(t, f.Schema)
	}
	if len(f.Values) != f.Schema.Words {
		return fmt.Errorf("write Parquet: a frame of source %s has %d words, its schema %d",
			t.name, len(f.Values), f.Schema.Words)
	}
	if f.Lost != t.lost {
		t.lost = f.Lost
		w.fact(len(w.facts.Lost), func() {
			w.facts.Lost = append(w.facts.Lost, lostFacts{w.total, t.name, f.Lost})
		})
	}
	if w.o.Windows {
		w.scalar(t.window, uint64(f.Begin-s.Mono))
		w.scalar(t.window+1, uint64(f.End-f.Begin))
	}
	for i, n := range t.columns {
		c, at := w.columns[n], f.Schema.Series[i].Off
		if c.n > w.rows {
			return fmt.Errorf("write Parquet: source %s gave %s twice in a tick", t.name, c.name)
		}
		c.pad(w.rows)
		c.put(f.Values[at : at+c.desc.Words()]...)
	}
	return nil
}

// source begins the table of a source.
func (w *Writer) source(name string) *table {
	t := &table{name: name, byID: map[string][]int{}, descs: map[string]*metric.Desc{}}
	w.byName[name] = t
	w.tables = append(w.tables, t)
	if w.o.Windows {
		meta := func(typ string) map[string]string { return map[string]string{keyType: typ} }
		t.window = w.addColumn(&column{name: name + beginSuffix, meta: meta("window_begin"),
			unit: string(metric.Nanoseconds), rows: rows{typ: int64s}})
		w.addColumn(&column{name: name + widthSuffix, meta: meta("window_width"),
			unit: string(metric.Nanoseconds), rows: rows{typ: uint64s}})
	}
	return t
}

// change finds or makes the columns of a source's new schema.
func (w *Writer) change(t *table, schema *metric.Schema) {
	delete(w.live, t.schema)
	old := t.columns
	t.schema = schema
	w.live[schema] = t
	var fresh []bool
	t.columns, fresh = w.place(t, schema)
	here := map[int]bool{}
	for i, n := range t.columns {
		if c, start := w.columns[n], schema.Series[i].Start; fresh[i] || c.start != start {
			c.start = start
			w.started(n, start)
		}
		here[n] = true
	}
	var gone spans
	for _, n := range old {
		if !here[n] {
			gone.add(n)
		}
	}
	if gone != nil {
		w.facts.Ends = append(w.facts.Ends, endFacts{w.total, gone})
	}
}

// place gives each series of a schema a column, and says which are fresh. A
// thing that is followed by another of its name while it is still there has
// two lives at once: each has a column, and one that goes on keeps its own.
func (w *Writer) place(t *table, schema *metric.Schema) (columns []int, fresh []bool) {
	columns, fresh = make([]int, len(schema.Series)), make([]bool, len(schema.Series))
	taken := map[int]bool{}
	find := func(lives []int, fits func(n int) bool) int {
		at := slices.IndexFunc(lives, func(n int) bool { return !taken[n] && fits(n) })
		if at < 0 {
			return -1
		}
		taken[lives[at]] = true
		return lives[at]
	}
	ids := make([]string, len(schema.Series))
	for i := range schema.Series {
		e := &schema.Series[i]
		ids[i] = string(identity(nil, e.Desc, e.Values))
		columns[i] = find(t.byID[ids[i]], func(n int) bool { return w.columns[n].start == e.Start })
	}
	for i := range columns {
		if columns[i] >= 0 {
			continue
		}
		lives := t.byID[ids[i]]
		if columns[i] = find(lives, func(int) bool { return true }); columns[i] < 0 {
			columns[i], fresh[i] = w.addSeries(t, &schema.Series[i], len(lives)+1), true
			taken[columns[i]] = true
			t.byID[ids[i]] = append(lives, columns[i])
		}
	}
	return columns, fresh
}

// addSeries adds the column of a series, or of another life of it at once.
func (w *Writer) addSeries(t *table, e *metric.Series, life int) int {
	d := t.desc(e.Desc)
	if _, ok := w.help[d.Name]; !ok && d.Help != "" {
		w.help[d.Name] = d.Help
	}
	meta := metaOf(d, e.Values)
	if life > 1 {
		meta[keyLife] = strconv.Itoa(life)
	}
	n := w.addColumn(&column{name: w.named.name(d, e.Values), meta: meta,
		desc: d, values: e.Values, rows: rows{typ: typeOf(d)}})
	t.spans.add(n)
	return n
}

// Event keeps an event.
func (w *Writer) Event(e Event) { w.events = append(w.events, eventJSON(e)) }

// Gap keeps a gap, before the next tick.
func (w *Writer) Gap(g Gap) {
	w.fact(len(w.facts.Breaks), func() {
		w.facts.Breaks = append(w.facts.Breaks, breakFacts{w.total, g.From, g.To, g.Ticks, g.Reason})
	})
}

// SetMetadata sets a key of the file's metadata, as Options.Metadata does.
func (w *Writer) SetMetadata(key, value string) {
	m := maps.Clone(w.o.Metadata)
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	w.o.Metadata = m
}
