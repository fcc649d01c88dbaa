// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

const interrupts = "interrupts"

var interruptsDesc = counterOf(interrupts, "interrupts", "interrupts",
	"interrupts that CPUs took, by line; irq is the line's number or the architecture's name for it", "device", "irq")

// interruptLines is how many lines have a series of their own: the
// architecture's, then those that interrupted most when they were first seen.
// A machine with many queues has thousands.
const interruptLines = 128

// Interrupts is the source of /proc/interrupts, summed over the CPUs. Lines
// that are too many are summed in one whose labels are "other", which keeps
// what was counted by lines that are gone.
//
// The kernel counts each line on each CPU in 32 bits and shows only CPUs that
// are online, so every count is followed by itself: one that wraps, or whose
// CPU comes back, goes on where it was. What a line counted on a CPU that is
// offline stays in its sum.
type Interrupts struct {
	file   *seqFile
	limit  int
	header []byte
	cpus   []int      // of the columns
	lines  []*irqLine // of the file, in its order
	shown  []*irqLine // those with a series
	now    []uint64   // counts of a line, as they were read
	hidden bool       // there was a line without one
	other  uint64
	schema *metric.Schema
	read   int64 // when the file was read last, by the wall clock; 0: never
}

// irqLine is a line of the file.
type irqLine struct {
	irq, device string
	head, tail  []byte   // of the line, what is before and after the counts
	counts      []uint64 // by CPU
	total       uint64
	learned     uint64 // all counts when the line was first there, to be admitted by
	start       int64
	shown       bool
}

// NewInterrupts opens the file at path. At most limit lines get a series of
// their own (0: 128).
func NewInterrupts(path string, limit int) (*Interrupts, error) {
	file, err := openSeqFile(path)
	if err != nil {
		return nil, err
	}
	return &Interrupts{file: file, limit: cmp.Or(limit, interruptLines)}, nil
}

// Name is "interrupts".
func (s *Interrupts) Name() string { return interrupts }

// Read fills f, without allocating while there are the same lines and CPUs.
func (s *Interrupts) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	text, err := s.file.Read()
	f.End = host.Mono()
	if err != nil {
		return err
	}
	if !s.parse(text) {
		if err := s.learn(text); err != nil {
			return err
		}
	}
	s.read = host.Wall()
	f.Schema, f.Lost = s.schema, 0
	f.Resize(s.schema.Words)
	to := f.Values[:0]
	for _, l := range s.shown {
		to = append(to, l.total)
	}
	if s.hidden {
		to = append(to, s.other)
	}
	return nil
}

// parse adds the counts of a file that has the known CPUs and lines, and is
// false for another.
func (s *Interrupts) parse(text []byte) bool {
	text, is := bytes.CutPrefix(text, s.header)
	if !is || s.schema == nil {
		return false
	}
	for _, l := range s.lines {
		if text, is = bytes.CutPrefix(text, l.head); !is {
			return false
		}
		for s.now = s.now[:0]; len(s.now) < len(s.cpus); {
			n, rest, ok := source.Number(text)
			if !ok {
				break // a line that counts only for the whole machine (ERR, MIS) has but one
			}
			s.now, text = append(s.now, n), rest
		}
		if text, is = bytes.CutPrefix(text, l.tail); !is {
			return false
		}
		s.count(l)
	}
	return len(text) == 0
}

// count adds the counts of a line that were read.
func (s *Interrupts) count(l *irqLine) {
	for i, n := range s.now {
		added := follow(&l.counts[s.cpus[i]], n)
		l.total += added
		if !l.shown {
			s.other += added
		}
	}
}

// unsettled is by how much a count may step back: the kernel computes the
// function calls of x86 as a difference of two counters that are not
// incremented at once (arch_show_interrupts).
const unsettled = 64

// follow sets a count to now and is by how much it grew.
func follow(count *uint64, now uint64) (added uint64) {
	before := *count
	switch {
	case now >= before:
		added = now - before
	case before-now <= unsettled:
		return 0
	case before <= math.MaxUint32 && uint32(now-before) < 1<<31:
		added = uint64(uint32(now - before)) // it wrapped
	default:
		added = now // the line was given up and made again
	}
	*count = now
	return added
}

var errInterrupts = errors.New("/proc/interrupts is not as proc_interrupts(5) has it")

// learn takes over the CPUs and lines of a file, and its counts.
func (s *Interrupts) learn(text []byte) error {
	header, rest, _ := bytes.Cut(text, newline)
	cpus, err := parseCPUColumns(header)
	if err != nil {
		return err
	}
	s.header, s.cpus = slices.Concat(header, newline), cpus
	before := map[string]*irqLine{}
	for _, l := range s.lines {
		before[l.irq] = l
	}
	var lines []*irqLine
	known := map[string]bool{}
	for line := range bytes.Lines(rest) {
		l, err := s.learnLine(line, before)
		if err != nil {
			return err
		}
		if known[l.irq] {
			return fmt.Errorf("%w: %s is there twice", errInterrupts, l.irq)
		}
		known[l.irq] = true
		lines = append(lines, l)
	}
	s.lines = lines
	s.admit()
	if err := s.rebuild(); err != nil {
		return err
	}
	if !s.parse(text) {
		s.schema = nil
		return errInterrupts
	}
	return nil
}

// learnLine is the line as it was before, or a new one.
func (s *Interrupts) learnLine(line []byte, before map[string]*irqLine) (*irqLine, error) {
	name, _, is := bytes.Cut(line, []byte(":"))
	if !is || len(bytes.TrimSpace(name)) == 0 {
		return nil, fmt.Errorf("%w: %q", errInterrupts, line)
	}
	l := &irqLine{irq: string(bytes.TrimSpace(name)), head: slices.Clone(line[:len(name)+1]), start: host.BootTime()}
	rest := line[len(l.head):]
	for range s.cpus {
		n, after, ok := source.Number(rest)
		if !ok {
			break
		}
		l.learned, rest = l.learned+n, after
	}
	l.tail = slices.Clone(rest)
	l.device = irqDevice(l.irq, strings.TrimSuffix(string(rest), "\n"))
	if s.read != 0 {
		l.start = s.read
	}
	most := s.cpus[len(s.cpus)-1] + 1
	if old := before[l.irq]; old != nil {
		if old.device == l.device {
			old.head, old.tail, l = l.head, l.tail, old
		} else {
			l.counts = old.counts // another device on it counts on
		}
	}
	l.counts = append(l.counts, make([]uint64, max(0, most-len(l.counts)))...)
	return l, nil
}

// irqDevice is what a line says that it is for. Lines of the architecture end in
// an explanation. The others have the interrupt controller, the number there
// and how it triggers, then after two blanks the names that drivers gave;
// without any they end in the blanks that fill up the trigger
// (kernel/irq/proc.c, show_interrupts).
func irqDevice(irq, tail string) string {
	name := strings.TrimSpace(tail)
	if named(irq) {
		return name
	}
	i := strings.LastIndex(name, "  ")
	if i < 0 || strings.HasSuffix(tail, " ") || strings.Trim(name[i+2:], "0123456789") == "" {
		return ""
	}
	return name[i+2:]
}

// named tells a line of the architecture from one with a number.
func named(irq string) bool { return irq[0] < '0' || irq[0] > '9' }

// admit gives new lines a series while there is room. One that got none never
// gets one, because its counts are in the sum of the others.
func (s *Interrupts) admit() {
	var wait []*irqLine
	room := s.limit
	for _, l := range s.lines {
		switch {
		case l.shown:
			room--
		case l.total == 0:
			wait = append(wait, l)
		}
	}
	slices.SortStableFunc(wait, func(a, b *irqLine) int {
		if x, y := named(a.irq), named(b.irq); x != y {
			if x {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.learned, a.learned)
	})
	for i, l := range wait {
		l.shown = i < room
	}
}

// rebuild makes the schema of the lines there are.
func (s *Interrupts) rebuild() error {
	s.shown = s.shown[:0]
	var series []metric.Series
	for _, l := range s.lines {
		if !l.shown {
			s.hidden = true
			continue
		}
		s.shown = append(s.shown, l)
		series = append(series, metric.Series{Desc: interruptsDesc, Values: []string{l.device, l.irq}, Start: l.start})
	}
	if s.hidden {
		series = append(series, metric.Series{Desc: interruptsDesc, Values: []string{"other", "other"}, Start: host.BootTime()})
	}
	schema, err := metric.NewSchema(s.Name(), series)
	s.schema = schema
	return err
}

// parseCPUColumns reads the header "CPU0 CPU1 CPU3".
func parseCPUColumns(header []byte) (cpus []int, err error) {
	for column := range bytes.FieldsSeq(header) {
		text, is := bytes.CutPrefix(column, []byte("CPU"))
		cpu, rest, ok := source.Number(text)
		if !is || !ok || len(rest) > 0 || cpu > maxCPU || len(cpus) > 0 && int(cpu) <= cpus[len(cpus)-1] {
			return nil, fmt.Errorf("%w: %q", errInterrupts, header)
		}
		cpus = append(cpus, int(cpu))
	}
	if len(cpus) == 0 {
		return nil, errInterrupts
	}
	return cpus, nil
}

// Close closes the file.
func (s *Interrupts) Close() error { return s.file.Close() }

// A read takes 43 us with 2 CPUs and 35 lines, of which most is the kernel's
// (BenchmarkSamplers), and grows with the product of both: with 128 CPUs and
// 600 lines what this package does alone takes 2 ms (BenchmarkManyInterrupts).
func interruptsSampler() source.Sampler {
	return source.Sampler{Name: interrupts, Reads: "/proc/interrupts", Every: 5 * time.Second,
		Descs: []*metric.Desc{interruptsDesc},
		Open:  func() (source.Source, error) { return NewInterrupts("/proc/interrupts", 0) }}
}
