// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"slices"
	"strconv"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// tick is the unit of the times in /proc/stat in nanoseconds: USER_HZ is 100 on
// the architectures that the agent is built for (proc(5)).
const tick = 10_000_000

// states are the values of the label state, in the order in which the words
// of a CPU lie in a frame. Together they are all the time there is: guest
// time, which the kernel counts into user and nice too, is taken out of these.
var states = [...]string{"user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest"}

const (
	user = iota
	nice
	system
	idle
	iowait
	irq
	softirq
	steal
	guest
)

var (
	cpuUsage = &metric.Desc{Name: "cpu_usage", Help: "time a CPU spent in each state", Unit: metric.Nanoseconds,
		Kind: metric.Counter, Keys: []string{"id", "state"}, Sampler: "cpu_usage"}
	cpuCores = &metric.Desc{Name: "cpu_cores", Help: "CPUs that are online", Kind: metric.Gauge, Sampler: "cpu_cores"}
)

// StatDescs describe the metrics of Stat.
func StatDescs() []*metric.Desc { return []*metric.Desc{cpuUsage, cpuCores} }

// Stat is the source of /proc/stat: the time of each CPU by state, and how many
// CPUs there are. The kernel shows the time in steps of 10 ms, and counts it by
// its scheduler tick unless it is built to account at every change of state
// (CONFIG_VIRT_CPU_ACCOUNTING).
type Stat struct {
	file   *source.File
	usage  bool // cpu_usage is on
	cores  bool // cpu_cores is on
	schema *metric.Schema
	cpus   []int                 // of the schema
	now    []int                 // of the file as it was read last
	times  [][len(states)]uint64 // by position in now, in ticks
	shown  map[int]*counted      // by CPU, those that went offline too
}

// counted is what a CPU's counters stand at: at times, which were base at
// start, both in ticks.
type counted struct {
	start       int64
	base, times [len(states)]uint64
}

// NewStat opens /proc/stat for the metrics that are on.
func NewStat(usage, cores bool) (*Stat, error) {
	f, err := source.OpenFile("/proc/stat")
	if err != nil {
		return nil, err
	}
	return &Stat{file: f, usage: usage, cores: cores, shown: map[int]*counted{}}, nil
}

// Name is "stat".
func (s *Stat) Name() string { return "stat" }

// Read fills f without allocating while the same CPUs are online.
func (s *Stat) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	text, err := s.file.Read()
	f.End = host.Mono()
	if err != nil {
		return err
	}
	if err := s.parse(text); err != nil {
		return err
	}
	reset := s.advance()
	if reset || s.schema == nil || !slices.Equal(s.cpus, s.now) {
		if err := s.rebuild(); err != nil {
			return err
		}
	}
	f.Schema, f.Lost = s.schema, 0
	f.Resize(s.schema.Words)
	to := f.Values[:0]
	if s.usage {
		for _, cpu := range s.cpus {
			c := s.shown[cpu]
			for state, ticks := range c.times {
				to = append(to, (ticks-c.base[state])*tick)
			}
		}
	}
	if s.cores {
		to = append(to, uint64(len(s.cpus)))
	}
	return nil
}

// jitter is by how many ticks a counter may step back without a reset. idle
// and iowait do so by a tick or two, because the kernel computes them anew
// from a CPU that may be waking at that moment (proc(5)); they then stand
// still until the kernel has caught up.
const jitter = 100

// advance takes over the times that were read. A counter never steps back; a
// CPU with one that fell further than jitter (kernels have lost the idle time
// of a CPU that came back online) counts from zero again, which reset tells.
func (s *Stat) advance() (reset bool) {
	for i, cpu := range s.now {
		now, c := &s.times[i], s.shown[cpu]
		if c == nil {
			s.shown[cpu] = &counted{start: host.BootTime(), times: *now}
			continue
		}
		for state, ticks := range now {
			if ticks+jitter < c.times[state] {
				*c, reset = counted{host.Wall(), *now, *now}, true
				break
			}
			c.times[state] = max(c.times[state], ticks)
		}
	}
	return reset
}

// rebuild makes the schema of the CPUs that are online now.
func (s *Stat) rebuild() error {
	s.cpus = slices.Clone(s.now)
	var series []metric.Series
	if s.usage {
		for _, cpu := range s.cpus {
			for _, state := range states {
				series = append(series, metric.Series{Desc: cpuUsage, Start: s.shown[cpu].start, Values: []string{strconv.Itoa(cpu), state}})
			}
		}
	}
	if s.cores {
		series = append(series, metric.Series{Desc: cpuCores})
	}
	schema, err := metric.NewSchema(s.Name(), series)
	s.schema = schema
	return err
}

var (
	errStat = errors.New("/proc/stat is not as proc(5) has it")
	newline = []byte("\n")
	cpuLine = []byte("cpu")
)

// parse reads the lines "cpuN user nice system idle iowait irq softirq steal
// guest guest_nice". The kernel writes them first, after the one of the sum.
func (s *Stat) parse(text []byte) error {
	s.now, s.times = s.now[:0], s.times[:0]
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, newline)
		rest, is := bytes.CutPrefix(line, cpuLine)
		if !is {
			break
		}
		if len(rest) > 0 && rest[0] != ' ' {
			if err := s.parseCPU(rest); err != nil {
				return err
			}
		}
	}
	if len(s.now) == 0 {
		return errStat
	}
	return nil
}

// maxCPU is above the number of any CPU there will be (NR_CPUS is 8,192 at
// most).
const maxCPU = 1 << 16

func (s *Stat) parseCPU(b []byte) error {
	cpu, b, ok := source.Number(b)
	if !ok || cpu > maxCPU || len(s.now) > 0 && int(cpu) <= s.now[len(s.now)-1] {
		return errStat
	}
	var v [10]uint64
	for i := range v {
		if v[i], b, ok = source.Number(b); !ok {
			return errStat
		}
	}
	// The kernel has guest and guest_nice in user and nice too
	// (account_guest_time). They are read one after the other, so the
	// difference may be off by a tick, but is never negative.
	t := [len(states)]uint64{user: v[0] - min(v[0], v[8]), nice: v[1] - min(v[1], v[9]), system: v[2], idle: v[3],
		iowait: v[4], irq: v[5], softirq: v[6], steal: v[7], guest: v[8] + v[9]}
	s.now, s.times = append(s.now, int(cpu)), append(s.times, t)
	return nil
}

// Close closes the file.
func (s *Stat) Close() error { return s.file.Close() }
