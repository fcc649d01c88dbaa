// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"time"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

const schedstat = "scheduler_schedstat"

// schedstatDescs are the metrics of a CPU, in the order of the last three
// numbers of its line. Those before them count only while
// kernel.sched_schedstats is on, and are zeros otherwise.
var schedstatDescs = [...]*metric.Desc{
	counterOf(schedstat, "scheduler_cpu_running", metric.Nanoseconds, "time in which tasks ran on a CPU", "id"),
	counterOf(schedstat, "scheduler_cpu_wait", metric.Nanoseconds, "time in which tasks waited to run on a CPU", "id"),
	counterOf(schedstat, "scheduler_cpu_timeslices", metric.None, "times a task began to run on a CPU", "id"),
}

// schedstatFields is how many numbers follow the name of a CPU.
const schedstatFields = 9

// Schedstat is the source of /proc/schedstat
// (Documentation/scheduler/sched-stats.rst).
type Schedstat struct {
	file   *seqFile
	schema *metric.Schema
	cpus   []int // of the schema
	now    []int // of the file as it was read last
	counts [][len(schedstatDescs)]uint64
}

// NewSchedstat opens the file at path.
func NewSchedstat(path string) (*Schedstat, error) {
	file, err := openSeqFile(path)
	if err != nil {
		return nil, absent(err, "a kernel that is built with CONFIG_SCHEDSTATS")
	}
	return &Schedstat{file: file}, nil
}

// Name is "scheduler_schedstat".
func (s *Schedstat) Name() string { return schedstat }

// Read fills f, without allocating while the same CPUs are online.
func (s *Schedstat) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	text, err := s.file.Read()
	f.End = host.Mono()
	if err != nil {
		return err
	}
	if err := s.parse(text); err != nil {
		return err
	}
	if s.schema == nil || !slices.Equal(s.cpus, s.now) {
		if err := s.rebuild(); err != nil {
			return err
		}
	}
	f.Schema, f.Lost = s.schema, 0
	f.Resize(s.schema.Words)
	to := f.Values[:0]
	for i := range s.counts {
		to = append(to, s.counts[i][:]...)
	}
	return nil
}

func (s *Schedstat) rebuild() error {
	s.cpus = slices.Clone(s.now)
	var series []metric.Series
	for _, cpu := range s.cpus {
		for _, d := range schedstatDescs {
			series = append(series, metric.Series{Desc: d, Values: []string{strconv.Itoa(cpu)}, Start: host.BootTime()})
		}
	}
	schema, err := metric.NewSchema(s.Name(), series)
	s.schema = schema
	return err
}

var errSchedstat = errors.New("/proc/schedstat is not as Documentation/scheduler/sched-stats.rst has it")

// parse reads the lines "cpuN" and nine numbers; others are of scheduling
// domains.
func (s *Schedstat) parse(text []byte) error {
	s.now, s.counts = s.now[:0], s.counts[:0]
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, newline)
		rest, is := bytes.CutPrefix(line, cpuLine)
		if !is {
			continue
		}
		cpu, rest, ok := source.Number(rest)
		if !ok || cpu > maxCPU || len(s.now) > 0 && int(cpu) <= s.now[len(s.now)-1] {
			return errSchedstat
		}
		var v [schedstatFields]uint64
		for i := range v {
			if v[i], rest, ok = source.Number(rest); !ok {
				return errSchedstat
			}
		}
		if len(rest) > 0 {
			return errSchedstat
		}
		s.now = append(s.now, int(cpu))
		s.counts = append(s.counts, [len(schedstatDescs)]uint64(v[schedstatFields-len(schedstatDescs):]))
	}
	if len(s.now) == 0 {
		return errSchedstat
	}
	return nil
}

// Close closes the file.
func (s *Schedstat) Close() error { return s.file.Close() }

// The kernel writes a line for each CPU, and one for each domain that it is
// in, some kilobytes a CPU on large machines.
func schedstatSampler() source.Sampler {
	return source.Sampler{Name: schedstat, Reads: "/proc/schedstat", Needs: "CONFIG_SCHEDSTATS",
		Every: 5 * time.Second, Descs: schedstatDescs[:],
		Open: func() (source.Source, error) { return NewSchedstat("/proc/schedstat") }}
}
