// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// field says what a number of a file of named numbers is.
type field struct {
	at     string // "Tcp RetransSegs": the file's group, if it has groups, and key
	desc   *metric.Desc
	values []string // of the labels
	scale  uint64   // what one in the file is in the metric's unit; 0: 1
}

// number is a number of a file with its name there.
type number struct {
	group, key []byte
	value      uint64
}

// fieldFile is a file of named numbers in one of the forms that the network
// has: split takes it apart, the table says what the numbers are. A number that
// the table does not have is passed over, and what the file does not have is no
// series.
//
// The names are the same at every read, so each is held against the one that
// was there before, and looked up only when it is another.
type fieldFile struct {
	path    string
	split   func(text []byte, to []number) ([]number, error)
	table   map[string]*field
	file    *seqFile
	numbers []number
	known   []knownNumber
	fields  []*field // those of the file, in its order
}

// knownNumber is a name that was looked up: the field has its place in the
// frame by its order, or is nil.
type knownNumber struct {
	group, key string
	field      *field
}

func newFieldFile(path string, split func([]byte, []number) ([]number, error), tables ...[]field) *fieldFile {
	f := &fieldFile{path: path, split: split, table: map[string]*field{}}
	for _, table := range tables {
		for i := range table {
			f.table[table[i].at] = &table[i]
		}
	}
	return f
}

// read takes in the file. changed tells that its fields are others than before.
func (f *fieldFile) read() (changed bool, err error) {
	text, err := f.file.Read()
	if err != nil {
		return false, err
	}
	if f.numbers, err = f.split(text, f.numbers[:0]); err != nil {
		return false, fmt.Errorf("read %s: %w", f.path, err)
	}
	if f.same() {
		return false, nil
	}
	return true, f.learn()
}

func (f *fieldFile) same() bool {
	if len(f.numbers) != len(f.known) {
		return false
	}
	for i := range f.numbers {
		n, k := &f.numbers[i], &f.known[i]
		if string(n.key) != k.key || string(n.group) != k.group {
			return false
		}
	}
	return true
}

func (f *fieldFile) learn() error {
	f.known, f.fields = nil, nil
	seen := map[*field]bool{}
	for _, n := range f.numbers {
		k := knownNumber{group: string(n.group), key: string(n.key)}
		k.field = f.table[strings.TrimPrefix(k.group+" "+k.key, " ")]
		if seen[k.field] {
			f.known = nil
			return fmt.Errorf("read %s: %s is there twice", f.path, k.field.at)
		}
		if k.field != nil {
			seen[k.field] = true
			f.fields = append(f.fields, k.field)
		}
		f.known = append(f.known, k)
	}
	return nil
}

// words appends the values of the fields.
func (f *fieldFile) words(to []uint64) []uint64 {
	for i := range f.known {
		if field := f.known[i].field; field != nil {
			to = append(to, f.numbers[i].value*max(field.scale, 1))
		}
	}
	return to
}

// fieldSource is a source of several such files.
type fieldSource struct {
	name   string
	files  []*fieldFile
	schema *metric.Schema
}

// openFields opens those of the files that there are: a kernel without IPv6 has
// none for it.
func openFields(name, needs string, files ...*fieldFile) (*fieldSource, error) {
	s := &fieldSource{name: name}
	var missing error
	for _, f := range files {
		file, err := openSeqFile(f.path)
		if errors.Is(err, fs.ErrNotExist) {
			missing = err
			continue
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		f.file = file
		s.files = append(s.files, f)
	}
	if len(s.files) == 0 {
		return nil, absent(missing, needs)
	}
	return s, nil
}

// Name is the name of the sampler.
func (s *fieldSource) Name() string { return s.name }

// Read fills f, without allocating while the files have the same fields.
func (s *fieldSource) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	for _, file := range s.files {
		changed, err := file.read()
		if err != nil {
			s.schema = nil
			return err
		}
		if changed {
			s.schema = nil
		}
	}
	f.End = host.Mono()
	if s.schema == nil {
		if err := s.rebuild(); err != nil {
			return err
		}
	}
	f.Schema, f.Lost = s.schema, 0
	f.Resize(s.schema.Words)
	to := f.Values[:0]
	for _, file := range s.files {
		to = file.words(to)
	}
	return nil
}

func (s *fieldSource) rebuild() (err error) {
	var series []metric.Series
	for _, file := range s.files {
		for _, field := range file.fields {
			one := metric.Series{Desc: field.desc, Values: field.values}
			if field.desc.Kind == metric.Counter {
				one.Start = host.BootTime()
			}
			series = append(series, one)
		}
	}
	s.schema, err = metric.NewSchema(s.name, series)
	return err
}

// Close closes the files.
func (s *fieldSource) Close() (err error) {
	for _, file := range s.files {
		err = errors.Join(err, file.file.Close())
	}
	return err
}

// fieldDescs are the metrics of tables, each once.
func fieldDescs(tables ...[]field) (descs []*metric.Desc) {
	seen := map[*metric.Desc]bool{}
	for _, table := range tables {
		for _, f := range table {
			if !seen[f.desc] {
				seen[f.desc] = true
				descs = append(descs, f.desc)
			}
		}
	}
	return descs
}

var (
	errPairs = errors.New("lines are not in pairs of names and numbers")
	errNamed = errors.New("lines are not of a name and a number")
)

// splitPairs takes apart /proc/net/snmp and /proc/net/netstat: a line of names
// and a line of numbers, both beginning with the group ("Tcp: ").
func splitPairs(text []byte, to []number) ([]number, error) {
	for len(text) > 0 {
		var names, values []byte
		names, text, _ = bytes.Cut(text, newline)
		values, text, _ = bytes.Cut(text, newline)
		group, names, ok := bytes.Cut(names, colon)
		again, values, also := bytes.Cut(values, colon)
		if !ok || !also || !bytes.Equal(group, again) {
			return to, errPairs
		}
		for {
			var key []byte
			if key, names = word(names); len(key) == 0 {
				break
			}
			n, rest, ok := signed(values)
			if !ok {
				return to, errPairs
			}
			to, values = append(to, number{group, key, n}), rest
		}
		if rest, _ := word(values); len(rest) > 0 {
			return to, errPairs
		}
	}
	return to, nil
}

// splitNamed takes apart /proc/net/snmp6: a name and a number a line. The group
// of all is "".
func splitNamed(text []byte, to []number) ([]number, error) {
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, newline)
		key, rest := word(line)
		value, rest := word(rest)
		n, after, ok := source.Number(value)
		if !ok || len(after) > 0 || len(rest) > 0 {
			return to, errNamed
		}
		to = append(to, number{nil, key, n})
	}
	return to, nil
}

// splitLists takes apart /proc/net/sockstat: lines of a group and of names,
// each with its number behind it.
func splitLists(text []byte, to []number) ([]number, error) {
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, newline)
		group, line, ok := bytes.Cut(line, colon)
		if !ok {
			return to, errNamed
		}
		for {
			var key []byte
			if key, line = word(line); len(key) == 0 {
				break
			}
			n, rest, ok := signed(line)
			if !ok {
				return to, errNamed
			}
			to, line = append(to, number{group, key, n}), rest
		}
	}
	return to, nil
}

var colon = []byte(":")

// word takes the first word and the blanks before it off the front of b.
func word(b []byte) (word, rest []byte) {
	from := 0
	for from < len(b) && blank(b[from]) {
		from++
	}
	to := from
	for to < len(b) && !blank(b[to]) {
		to++
	}
	return b[from:to], b[to:]
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

// signed takes a decimal number off the front of b as source.Number does; one
// below zero (Tcp MaxConn is -1, for "no limit") is in two's complement.
func signed(b []byte) (n uint64, rest []byte, ok bool) {
	minus := len(b) > 1 && b[0] == ' ' && b[1] == '-'
	if minus {
		b = b[2:]
	}
	n, rest, ok = source.Number(b)
	if minus {
		n = -n
	}
	return n, rest, ok && (len(rest) == 0 || rest[0] == ' ')
}
