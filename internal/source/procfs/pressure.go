// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

const pressure = "pressure"

var (
	pressureStalled = counterOf(pressure, "pressure_stalled", metric.Nanoseconds,
		"time in which some tasks, or all that were not idle (full), waited for a resource", "kind", "resource")
	pressureAverage = floatOf(pressure, "pressure_average", ratio,
		"share of the time in which some tasks, or all that were not idle (full), waited for a resource, as the kernel averages it",
		"kind", "resource", "window")
)

// resources are the files in /proc/pressure. irq is there since Linux 6.1,
// with CONFIG_IRQ_TIME_ACCOUNTING.
var resources = []string{"cpu", "memory", "io", "irq"}

// windows are the values of the label window, in the order of a line.
var windows = [...]struct {
	key  []byte
	name string
}{{[]byte("avg10="), "10s"}, {[]byte("avg60="), "60s"}, {[]byte("avg300="), "300s"}}

var stallKinds = [...]struct {
	key  []byte
	name string
}{{[]byte("some "), "some"}, {[]byte("full "), "full"}}

// Pressure is the source of the stall information of the whole machine
// (Documentation/accounting/psi.rst). The kernel brings the totals up to date
// at every read, the averages every two seconds.
type Pressure struct {
	files  []stallFile
	schema *metric.Schema
}

type stallFile struct {
	*source.File
	resource string
	now      []stallLine // as the file was read last
	kinds    []string    // of the schema
}

// stallLine is one line of such a file.
type stallLine struct {
	kind  string
	avg   [len(windows)]float64
	total uint64 // nanoseconds
}

// NewPressure opens the files of the directory dir.
func NewPressure(dir string) (*Pressure, error) {
	p := &Pressure{}
	for _, resource := range resources {
		f, err := source.OpenFile(filepath.Join(dir, resource))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			p.files = append(p.files, stallFile{File: f, resource: resource})
			_, err = f.Read() // where PSI is off some kernels have the files and refuse the read
		}
		if err != nil {
			return nil, errors.Join(absent(err, "a kernel that starts with psi=1"), p.Close())
		}
	}
	if len(p.files) == 0 {
		return nil, source.Unsupported("there is no %s; it needs a kernel that is built with CONFIG_PSI and starts with psi=1", dir)
	}
	return p, nil
}

// Name is "pressure".
func (p *Pressure) Name() string { return pressure }

// Read fills f without allocating.
func (p *Pressure) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	same := p.schema != nil
	for i := range p.files {
		s := &p.files[i]
		text, err := s.Read()
		if err != nil {
			return err
		}
		if err := s.parse(text); err != nil {
			return fmt.Errorf("read pressure of %s: %w", s.resource, err)
		}
		same = same && slices.EqualFunc(s.now, s.kinds, func(l stallLine, kind string) bool { return l.kind == kind })
	}
	f.End = host.Mono()
	if !same {
		if err := p.rebuild(); err != nil {
			return err
		}
	}
	f.Schema, f.Lost = p.schema, 0
	f.Resize(p.schema.Words)
	to := f.Values[:0]
	for i := range p.files {
		for _, l := range p.files[i].now {
			to = append(to, l.total)
			for _, avg := range l.avg {
				to = append(to, math.Float64bits(avg))
			}
		}
	}
	return nil
}

func (p *Pressure) rebuild() error {
	var series []metric.Series
	for i := range p.files {
		s := &p.files[i]
		s.kinds = s.kinds[:0]
		for _, l := range s.now {
			s.kinds = append(s.kinds, l.kind)
			series = append(series, metric.Series{Desc: pressureStalled, Values: []string{l.kind, s.resource}, Start: host.BootTime()})
			for _, w := range windows {
				series = append(series, metric.Series{Desc: pressureAverage, Values: []string{l.kind, s.resource, w.name}})
			}
		}
	}
	schema, err := metric.NewSchema(p.Name(), series)
	p.schema = schema
	return err
}

var errPressure = errors.New("not as Documentation/accounting/psi.rst has it")

// parse reads lines "some avg10=0.00 avg60=0.00 avg300=0.00 total=0". That of
// the CPU's full is passed over: it means nothing for a whole machine, and the
// kernel writes zeros for the sake of old programs.
func (s *stallFile) parse(text []byte) error {
	s.now = s.now[:0]
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, newline)
		l, ok := parseStall(line)
		if !ok || len(s.now) == len(stallKinds) {
			return errPressure
		}
		if s.resource != "cpu" || l.kind != "full" {
			s.now = append(s.now, l)
		}
	}
	return nil
}

func parseStall(line []byte) (l stallLine, ok bool) {
	for _, kind := range stallKinds {
		if rest, is := bytes.CutPrefix(line, kind.key); is {
			l.kind, line = kind.name, rest
		}
	}
	for i, w := range windows {
		rest, is := bytes.CutPrefix(line, w.key)
		if !is {
			return l, false
		}
		if l.avg[i], line, ok = percent(rest); !ok || len(line) == 0 {
			return l, false
		}
		line = line[1:]
	}
	rest, is := bytes.CutPrefix(line, totalKey)
	n, rest, ok := source.Number(rest)
	l.total = n * 1000
	return l, is && ok && len(rest) == 0 && l.kind != ""
}

var totalKey = []byte("total=")

// percent takes "12.34" off the front of b and is 0.1234.
func percent(b []byte) (v float64, rest []byte, ok bool) {
	whole, b, ok := source.Number(b)
	if !ok || len(b) < 3 || b[0] != '.' {
		return 0, b, false
	}
	part, rest, ok := source.Number(b[1:])
	return float64(whole*100+part) / 1e4, rest, ok && len(b)-len(rest) == 3
}

// Close closes the files.
func (p *Pressure) Close() (err error) {
	for _, f := range p.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// A read takes 6 us on 2 CPUs: the kernel brings the times of each up to date
// (BenchmarkSamplers).
func pressureSampler() source.Sampler {
	const dir = "/proc/pressure"
	return source.Sampler{Name: pressure, Reads: dir + "/{cpu,memory,io,irq}", Needs: "CONFIG_PSI, psi=1",
		Descs: []*metric.Desc{pressureStalled, pressureAverage},
		Open:  func() (source.Source, error) { return NewPressure(dir) }}
}
