// SPDX-License-Identifier: Apache-2.0

// Package sysfs reads what drivers tell of the hardware in /sys: how fast CPUs
// run and how deep they sleep (cpufreq, cpuidle), when they were throttled,
// sensors (hwmon), energy (powercap), and errors of the memory (EDAC).
//
// A file there holds one number (Documentation/filesystems/sysfs.rst), so each
// sampler is a way to find files, and what a number in one means. What is not
// there, or cannot be read now, has no series.
package sysfs

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// Samplers are the samplers of this package, on the machine it runs on.
func Samplers() []source.Sampler { return samplers("/") }

// samplers are those of a machine whose /sys and /proc are below root.
func samplers(root string) []source.Sampler {
	return slices.Concat(cpuSamplers(root), []source.Sampler{hwmonSampler(root), raplSampler(root), edacSampler(root)})
}

// scale says what one of a file's numbers is in the metric's unit: it is
// multiplied by times (0: 1) or, where the metric is a float, divided by per
// (0: 1).
type scale struct {
	times int64
	per   float64
}

func (s scale) word(d *metric.Desc, n int64) uint64 {
	if d.Float {
		return math.Float64bits(float64(n) / max(s.per, 1))
	}
	return uint64(n * max(s.times, 1))
}

// attribute is a file with a number, and the series that it makes.
type attribute struct {
	path   string
	desc   *metric.Desc
	values []string
	scale  scale
	// wraps is above the highest number of a counter that begins again at
	// zero; 0: the file's counter does not. Such a one counts from when it
	// was first read.
	wraps int64

	fd    int
	shown bool  // it could be read last
	last  int64 // what was read last
	word  uint64
	start int64
}

// take takes over the number n, and tells whether the series began anew.
func (a *attribute) take(n int64) (anew bool) {
	switch {
	case a.desc.Kind != metric.Counter:
		a.word = a.scale.word(a.desc, n)
	case a.wraps > 0:
		if anew = a.start == 0; anew {
			a.start = host.Wall()
		} else {
			a.word += a.scale.word(a.desc, max(0, n-a.last+a.wraps)%a.wraps)
		}
	case a.start == 0:
		a.start, a.word, anew = host.BootTime(), a.scale.word(a.desc, n), true
	default:
		// A counter falls when its driver was loaded anew, or its CPU
		// came back, or somebody reset it (edac: reset_counters).
		if anew = n < a.last; anew {
			a.start = host.Wall()
		}
		a.word = a.scale.word(a.desc, n)
	}
	a.last = n
	return anew
}

// tree is the source of many attributes.
type tree struct {
	name       string
	find       func() []attribute
	attributes []attribute
	schema     *metric.Schema
	next       int64 // Mono when to look for files again
	buf        [4096]byte
}

// rescan is how long it takes at most to see what has appeared: sysfs tells
// nobody of it. What goes is seen at once.
const rescan = int64(time.Minute)

// openTree opens the files that find finds; where there is none it says absent.
func openTree(name string, find func() []attribute, absent string) (*tree, error) {
	t := &tree{name: name, find: find}
	t.look()
	if len(t.attributes) == 0 {
		return nil, source.Unsupported("%s", absent)
	}
	return t, nil
}

// Name is the sampler's.
func (t *tree) Name() string { return t.name }

// Read reads every file. It allocates nothing while the same ones are there,
// but for once a minute, when it looks for others.
func (t *tree) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	if f.Begin >= t.next {
		t.look()
	}
	changed := t.schema == nil
	for i := range t.attributes {
		a := &t.attributes[i]
		n, err := a.read(t.buf[:])
		if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) {
			t.next = 0
		}
		if changed = changed || a.shown != (err == nil); err == nil {
			changed = a.take(n) || changed
		}
		a.shown = err == nil
	}
	f.End = host.Mono()
	if changed {
		if err := t.rebuild(); err != nil {
			return err
		}
	}
	f.Schema, f.Lost = t.schema, 0
	f.Resize(t.schema.Words)
	to := f.Values[:0]
	for i := range t.attributes {
		if a := &t.attributes[i]; a.shown {
			to = append(to, a.word)
		}
	}
	if len(to) == 0 {
		return fmt.Errorf("%s: none of %d files can be read, such as %s", t.name, len(t.attributes), t.example())
	}
	return nil
}

func (t *tree) example() string {
	if len(t.attributes) == 0 {
		return "those that were there"
	}
	return t.attributes[0].path
}

// rebuild makes the schema of the files that can be read now.
func (t *tree) rebuild() (err error) {
	var series []metric.Series
	for i := range t.attributes {
		if a := &t.attributes[i]; a.shown {
			s := metric.Series{Desc: a.desc, Values: a.values}
			if a.desc.Kind == metric.Counter {
				s.Start = a.start
			}
			series = append(series, s)
		}
	}
	t.schema, err = metric.NewSchema(t.name, series)
	return err
}

// look looks for files. Those that are known already stay open and go on
// counting.
func (t *tree) look() {
	t.next = host.Mono() + rescan
	found := t.find()
	known := map[string]int{}
	for i := range t.attributes {
		known[t.attributes[i].key()] = i
	}
	same := len(found) == len(t.attributes)
	for i := range found {
		a := &found[i]
		j, ok := known[a.key()]
		same = same && ok && i == j
		if ok && t.attributes[j].fd >= 0 {
			*a = t.attributes[j]
			t.attributes[j].fd = -1 // moved
			continue
		}
		a.fd = open(a.path)
	}
	t.closeFiles()
	t.attributes = found
	if !same {
		t.schema = nil
	}
}

// key tells attributes apart: a driver that is loaded anew may give another
// device the same path.
func (a *attribute) key() string { return a.path + "\x00" + strings.Join(a.values, "\x00") }

// open is a file descriptor, or -1. The runtime's poller must not see it: it
// would wait for what sysfs never tells.
func open(path string) int {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

var errNoNumber = errors.New("not a number")

// read is the number in the file.
func (a *attribute) read(buf []byte) (int64, error) {
	if a.fd < 0 {
		if a.fd = open(a.path); a.fd < 0 {
			return 0, unix.EACCES
		}
	}
	n, err := unix.Pread(a.fd, buf, 0)
	if err != nil {
		if err == unix.ENODEV { // the device is gone; another may come
			unix.Close(a.fd)
			a.fd = -1
		}
		return 0, err
	}
	value, ok := integer(buf[:n])
	if !ok || value < 0 && a.desc.Kind == metric.Counter {
		return 0, errNoNumber
	}
	return value, nil
}

// integer is the number that is all of a file but for the blank at its end.
func integer(text []byte) (int64, bool) {
	for len(text) > 0 && (text[len(text)-1] == '\n' || text[len(text)-1] == ' ') {
		text = text[:len(text)-1]
	}
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		text = text[1:]
	}
	n, rest, ok := source.Number(text)
	if !ok || len(rest) > 0 || len(text) > 19 || n > math.MaxInt64 || text[0] == ' ' {
		return 0, false
	}
	if negative {
		return -int64(n), true
	}
	return int64(n), true
}

// Close closes the files.
func (t *tree) Close() error {
	t.closeFiles()
	return nil
}

func (t *tree) closeFiles() {
	for i := range t.attributes {
		if a := &t.attributes[i]; a.fd >= 0 {
			unix.Close(a.fd)
			a.fd = -1
		}
	}
}

// numbered lists the entries of a folder that are prefix and a number, by
// number; none where it cannot be read.
func numbered(dir, prefix string) []int {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var numbers []int
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), prefix)
		if n, err := strconv.ParseUint(rest, 10, 31); ok && err == nil {
			numbers = append(numbers, int(n))
		}
	}
	slices.Sort(numbers)
	return numbers
}

// text is the content of a small file, or "".
func text(elem ...string) string {
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
