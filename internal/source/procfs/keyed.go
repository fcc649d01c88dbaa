// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// row says what a line of a file of keys and values is.
type row struct {
	key    string // the line's last word before the value, without a colon
	desc   *metric.Desc
	values []string // of the labels
	scale  uint64   // what one in the file is in the metric's unit; 0: 1
	// less is the key of a line that is counted in this one too and is taken
	// out of it.
	less string
}

// keyed is a file of lines "key value", with or without a colon and " kB" (as
// Linux writes 1,024 bytes), of which a table makes series. A line that the
// table does not have is passed over, and what the file does not have is no
// series.
//
// The lines of such a file are the same at every read, so each is held
// against the one that was there before and its key looked up only when it is
// another.
type keyed struct {
	path  string
	file  *seqFile
	table []row
	lines []keyedLine
	cells []*cell // those with a line, in the order of the lines
	known map[string]*cell
}

type keyedLine struct {
	head []byte // the line up to its value, blanks at the end removed
	cell *cell  // nil: nobody asked for this line
}

// cell is one series.
type cell struct {
	*row
	read  uint64 // as the file has it, in the unit of the metric
	shown uint64
	less  *cell
}

func openKeyed(path string, table []row) (*keyed, error) {
	file, err := openSeqFile(path)
	if err != nil {
		return nil, err
	}
	return &keyed{path: path, file: file, table: table, known: map[string]*cell{}}, nil
}

// read takes in the file. changed tells that cells are others than before.
func (k *keyed) read() (changed bool, err error) {
	text, err := k.file.Read()
	if err != nil {
		return false, err
	}
	if k.parse(text) {
		return false, nil
	}
	if err := k.learn(text); err != nil {
		return false, err
	}
	return true, nil
}

// parse reads the values of a file that has the known lines, and is false for
// another.
func (k *keyed) parse(text []byte) bool {
	for i := range k.lines {
		l := &k.lines[i]
		rest, is := bytes.CutPrefix(text, l.head)
		if !is {
			return false
		}
		n, rest, ok := source.Number(rest)
		if !ok {
			return false
		}
		if after, is := bytes.CutPrefix(rest, kilobytes); is {
			n, rest = n<<10, after
		}
		if len(rest) == 0 || rest[0] != '\n' {
			return false
		}
		text = rest[1:]
		if l.cell != nil {
			l.cell.read = n * max(l.cell.scale, 1)
		}
	}
	if len(text) > 0 || len(k.cells) == 0 {
		return false
	}
	for _, c := range k.cells {
		c.show()
	}
	return true
}

// show takes over what was read. A counter never steps back: the kernel sums
// those of its CPUs without stopping them, leaves out for a moment those of a
// CPU that goes offline (mm/vmstat.c, vm_events_fold_cpu), and what is taken
// out of a counter may be counted before the counter itself is.
func (c *cell) show() {
	v := c.read
	if c.less != nil {
		v -= min(v, c.less.read)
	}
	if c.desc.Kind == metric.Counter {
		v = max(v, c.shown)
	}
	c.shown = v
}

var kilobytes = []byte(" kB")

// errKeyed says that a file has another form.
var errKeyed = errors.New("lines are not of the form \"key value\"")

// learn looks up the lines of a file.
func (k *keyed) learn(text []byte) error {
	k.lines, k.cells = nil, nil
	for line := range bytes.Lines(text) {
		head := keyedHead(line)
		if head == nil {
			return fmt.Errorf("read %s: %w: %q", k.path, errKeyed, line)
		}
		c := k.find(string(head[bytes.LastIndexByte(head, ' ')+1:]))
		if c != nil {
			if slices.Contains(k.cells, c) {
				return fmt.Errorf("read %s: %s is there twice", k.path, c.key)
			}
			k.cells = append(k.cells, c)
		}
		k.lines = append(k.lines, keyedLine{slices.Clone(head), c})
	}
	for _, c := range k.cells {
		c.less = nil
		if i := slices.IndexFunc(k.cells, func(o *cell) bool { return c.row.less == o.key }); i >= 0 {
			c.less = k.cells[i]
		}
	}
	if !k.parse(text) {
		return fmt.Errorf("read %s: %w", k.path, errKeyed)
	}
	return nil
}

// keyedHead is the line without its value, or nil if it has none.
func keyedHead(line []byte) []byte {
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, newline), kilobytes)
	head := bytes.TrimRight(line, "0123456789")
	if len(head) == len(line) || len(head) == 0 || head[len(head)-1] != ' ' {
		return nil
	}
	return bytes.TrimRight(head, " ")
}

// find is the cell of a key, which keeps what it was across changes of the
// file, or nil.
func (k *keyed) find(key string) *cell {
	key = string(bytes.TrimSuffix([]byte(key), []byte(":")))
	if c := k.known[key]; c != nil {
		return c
	}
	i := slices.IndexFunc(k.table, func(r row) bool { return r.key == key })
	if i < 0 {
		return nil
	}
	c := &cell{row: &k.table[i]}
	k.known[key] = c
	return c
}

// series are those of the file, with label values before those of the table.
func (k *keyed) series(to []metric.Series, before ...string) []metric.Series {
	for _, c := range k.cells {
		s := metric.Series{Desc: c.desc, Values: slices.Concat(before, c.values)}
		if c.desc.Kind == metric.Counter {
			s.Start = host.BootTime()
		}
		to = append(to, s)
	}
	return to
}

// words are the values of the series.
func (k *keyed) words(to []uint64) []uint64 {
	for _, c := range k.cells {
		to = append(to, c.shown)
	}
	return to
}

// rowDescs are the metrics of a table, each once.
func rowDescs(table []row) (descs []*metric.Desc) {
	for _, r := range table {
		if !slices.Contains(descs, r.desc) {
			descs = append(descs, r.desc)
		}
	}
	return descs
}

// keyedSource is a source of one such file.
type keyedSource struct {
	*keyed
	name   string
	schema *metric.Schema
}

func newKeyedSource(name, path string, table []row) (*keyedSource, error) {
	k, err := openKeyed(path, table)
	if err != nil {
		return nil, err
	}
	return &keyedSource{keyed: k, name: name}, nil
}

// Name is the name of the sampler.
func (s *keyedSource) Name() string { return s.name }

// Read fills f, without allocating while the file has the same lines.
func (s *keyedSource) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	changed, err := s.read()
	f.End = host.Mono()
	if err != nil {
		return err
	}
	if changed || s.schema == nil {
		if s.schema, err = metric.NewSchema(s.name, s.series(nil)); err != nil {
			return err
		}
	}
	f.Schema, f.Lost = s.schema, 0
	f.Resize(s.schema.Words)
	s.words(f.Values[:0])
	return nil
}

// Close closes the file.
func (s *keyedSource) Close() error { return s.file.Close() }
