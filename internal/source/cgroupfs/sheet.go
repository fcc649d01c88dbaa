// SPDX-License-Identifier: Apache-2.0

package cgroupfs

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// file is a file of a group's directory and what is taken from it.
type file struct {
	name   string
	form   form
	fields []field
}

// form is how the text of a file is made.
type form uint8

const (
	single   form = iota // one number, or "max" for none
	pair                 // two of them, as in cpu.max
	keyed                // lines "key number"
	pressure             // lines "some avg10=0.00 avg60=0.00 avg300=0.00 total=0"
)

// field is one number of a file: a series of each group.
type field struct {
	key   string // of keyed and pressure ("some total"); elsewhere the place in the line
	desc  *metric.Desc
	other []string // values of the description's labels but for name, in order
	scale uint64   // to the unit of the description; 0: as it is
}

// Sheet is the source of some files of every group: what the kernel counts for
// memory, for tasks, for the bandwidth of CPUs. What a file does not have, or
// says is "max", has no series.
type Sheet struct {
	name   string
	groups Groups
	mount  string
	limit  int
	files  []file
	width  int // fields in all
	unread *metric.Desc

	generation uint64
	members    []*member
	values     []uint64 // by member and field, as read last
	there      []bool   // the same: the value was there
	shown      []bool   // there, as the schema has it
	omitted    int      // groups beyond the limit
	schema     *metric.Schema
	buf        [8192]byte // memory.stat of a root has 2 kB
}

type member struct {
	host.Cgroup
	paths [][]byte // of files, for the kernel: they end with 0
}

// NewSheet returns the source called name for the groups below mount, at most
// limit of them (0: 1,024). unread says how many are left out.
func newSheet(name string, groups Groups, mount string, limit int, files []file) *Sheet {
	s := &Sheet{name: name, groups: groups, mount: mount, limit: cmp.Or(limit, 1024), files: files,
		unread: &metric.Desc{Name: name + "_unread", Help: "cgroups that are not read, for the limit", Kind: metric.Gauge, Sampler: name}}
	for _, f := range files {
		s.width += len(f.fields)
	}
	return s
}

// Name is the name of the sampler.
func (s *Sheet) Name() string { return s.name }

// Close has nothing to close: files are opened for a read.
func (s *Sheet) Close() error { return nil }

// Read fills f, without allocating while the same groups have the same files.
func (s *Sheet) Read(f *metric.Frame) error {
	if g := s.groups.Generation(); g != s.generation || s.schema == nil {
		s.admit()
		s.generation = g
	}
	f.Begin = host.Mono()
	clear(s.there)
	for i, m := range s.members {
		if err := s.readMember(m, s.values[i*s.width:][:s.width], s.there[i*s.width:][:s.width]); err != nil {
			return err
		}
	}
	f.End, f.Lost = host.Mono(), 0
	if s.schema == nil || !slices.Equal(s.there, s.shown) {
		if err := s.rebuild(); err != nil {
			return err
		}
	}
	f.Schema = s.schema
	f.Resize(s.schema.Words)
	to := f.Values[:0]
	for i := range s.width {
		for m := range s.members {
			if at := m*s.width + i; s.there[at] {
				to = append(to, s.values[at])
			}
		}
	}
	_ = append(to, uint64(s.omitted))
	return nil
}

// admit takes over the groups there are.
func (s *Sheet) admit() {
	all := s.groups.Members()
	s.omitted = max(0, len(all)-s.limit)
	known := map[uint64]*member{}
	for _, m := range s.members {
		known[m.ID] = m
	}
	s.members = s.members[:0]
	for _, g := range all[:len(all)-s.omitted] {
		m := known[g.ID]
		if m == nil || m.Path != g.Path {
			m = &member{Cgroup: g}
			for _, f := range s.files {
				m.paths = append(m.paths, append([]byte(s.mount+g.Path+"/"+f.name), 0))
			}
		}
		s.members = append(s.members, m)
	}
	s.values = make([]uint64, len(s.members)*s.width)
	s.there = make([]bool, len(s.members)*s.width)
	s.schema = nil
}

// readMember reads the files of a group. A file that is not there, because the
// group is gone or the controller is not on, leaves its fields away.
func (s *Sheet) readMember(m *member, values []uint64, there []bool) error {
	for i := range s.files {
		f := &s.files[i]
		n := len(f.fields)
		text, err := readPath(m.paths[i], s.buf[:])
		if err == nil {
			err = f.parse(text, values[:n], there[:n])
		}
		if err != nil && err != unix.ENOENT && err != unix.ENODEV && err != unix.EOPNOTSUPP {
			return fmt.Errorf("read %s of cgroup %s: %w", f.name, m.Path, err)
		}
		values, there = values[n:], there[n:]
	}
	return nil
}

// rebuild makes the schema of what is there: each field's series together.
func (s *Sheet) rebuild() error {
	var series []metric.Series
	byField := s.fieldList()
	for i, f := range byField {
		for m, g := range s.members {
			if !s.there[m*s.width+i] {
				continue
			}
			series = append(series, metric.Series{Desc: f.desc, Values: labels(f.desc, g.Path, f.other), Start: cmp.Or(g.Born, host.BootTime())})
		}
	}
	series = append(series, metric.Series{Desc: s.unread})
	schema, err := metric.NewSchema(s.name, series)
	if err != nil {
		return err
	}
	s.schema, s.shown = schema, slices.Clone(s.there)
	return nil
}

func (s *Sheet) fieldList() (all []field) {
	for _, f := range s.files {
		all = append(all, f.fields...)
	}
	return all
}

// labels are the values in the order of the description's keys.
func labels(d *metric.Desc, path string, other []string) []string {
	values := make([]string, len(d.Keys))
	for i, key := range d.Keys {
		if key == "name" {
			values[i] = path
		} else {
			values[i], other = other[0], other[1:]
		}
	}
	return values
}

// parse sets the values of the fields that the text has.
func (f *file) parse(text []byte, values []uint64, there []bool) error {
	switch f.form {
	case single, pair:
		return f.parsePlaces(text, values, there)
	case keyed:
		return f.parseKeyed(text, values, there)
	}
	return f.parsePressure(text, values, there)
}

var unlimited = []byte("max")

func (f *file) parsePlaces(text []byte, values []uint64, there []bool) error {
	text = bytes.TrimSuffix(text, newline)
	for i := range f.fields {
		var word []byte
		word, text, _ = bytes.Cut(text, space)
		if bytes.Equal(word, unlimited) || len(word) > 0 && word[0] == '-' { // v1 writes -1
			continue
		}
		n, ok := number(word)
		if !ok {
			return fmt.Errorf("%q is no number", word)
		}
		if n >= 1<<63-1<<16 { // v1's memory limits have no word for none
			continue
		}
		values[i], there[i] = f.fields[i].scaled(n), true
	}
	return nil
}

func (f *file) parseKeyed(text []byte, values []uint64, there []bool) error {
	at := 0 // fields are mostly in the order of the file
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, newline)
		key, value, ok := bytes.Cut(line, space)
		if !ok {
			return fmt.Errorf("line %q has no value", line)
		}
		i := f.find(key, at)
		if i < 0 || there[i] {
			continue
		}
		n, ok := number(value)
		if !ok {
			return fmt.Errorf("line %q has no number", line)
		}
		values[i], there[i] = f.fields[i].scaled(n), true
		at = i + 1
	}
	return nil
}

// find is the field of a key, looked for from at on and around; -1: none.
func (f *file) find(key []byte, at int) int {
	for n := range f.fields {
		i := (at + n) % len(f.fields)
		if string(key) == f.fields[i].key {
			return i
		}
	}
	return -1
}

func (f *file) parsePressure(text []byte, values []uint64, there []bool) error {
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, newline)
		kind, rest, _ := bytes.Cut(line, space)
		for len(rest) > 0 {
			var word []byte
			word, rest, _ = bytes.Cut(rest, space)
			key, value, ok := bytes.Cut(word, equals)
			if !ok {
				return fmt.Errorf("line %q has no value", line)
			}
			i := f.findPressure(kind, key)
			if i < 0 {
				continue
			}
			if !f.fields[i].desc.Float {
				n, ok := number(value)
				if !ok {
					return fmt.Errorf("line %q has no number", line)
				}
				values[i], there[i] = f.fields[i].scaled(n), true
				continue
			}
			percent, err := strconv.ParseFloat(string(value), 64)
			if err != nil {
				return fmt.Errorf("line %q has no number", line)
			}
			values[i], there[i] = math.Float64bits(percent/100), true
		}
	}
	return nil
}

func (f *file) findPressure(kind, key []byte) int {
	for i := range f.fields {
		k := f.fields[i].key
		if len(k) == len(kind)+1+len(key) && k[:len(kind)] == string(kind) && k[len(kind)+1:] == string(key) {
			return i
		}
	}
	return -1
}

func (f *field) scaled(n uint64) uint64 { return n * cmp.Or(f.scale, 1) }

var (
	space  = []byte(" ")
	equals = []byte("=")
)
