// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"slices"
	"strconv"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// tick is the unit of the times in /proc/stat in nanoseconds: USER_HZ is 100 on
// every architecture that Go runs on (proc(5)).
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

// Stat is the source of /proc/stat: the time of each CPU by state, and how many
// CPUs there are. The kernel counts by its scheduler tick, shown in steps of
// 10 ms.
type Stat struct {
	file   *file
	usage  bool // cpu_usage is on
	cores  bool // cpu_cores is on
	schema *metric.Schema
	cpus   []int                 // of the schema
	now    []int                 // of the file as it was read last
	times  [][len(states)]uint64 // by position in now, in ticks
	last   []uint64              // the words last published: none may step back
}

// NewStat opens /proc/stat.
func NewStat(usage, cores bool) (*Stat, error) {
	f, err := open("/proc/stat")
	if err != nil {
		return nil, err
	}
	return &Stat{file: f, usage: usage, cores: cores}, nil
}

// Name is "stat".
func (s *Stat) Name() string { return "stat" }

// Read fills f without allocating while the same CPUs are online.
func (s *Stat) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	text, err := s.file.read()
	f.End = host.Mono()
	if err != nil {
		return err
	}
	btime, err := s.parse(text)
	if err != nil {
		return err
	}
	if s.schema == nil || !slices.Equal(s.cpus, s.now) {
		if err := s.rebuild(btime); err != nil {
			return err
		}
	}
	f.Schema, f.Lost = s.schema, 0
	f.Resize(s.schema.Words)
	to := f.Values
	if s.usage {
		for i := range s.times {
			for j, t := range s.times[i] {
				at := i*len(states) + j
				// iowait, and idle with it, may step back when a CPU
				// wakes (proc(5)); a counter does not.
				s.last[at] = max(s.last[at], t*tick)
				to[at] = s.last[at]
			}
		}
		to = to[len(s.last):]
	}
	if s.cores {
		to[0] = uint64(len(s.now))
	}
	return nil
}

// rebuild makes the schema of the CPUs that are online now. All counters began
// when the machine did.
func (s *Stat) rebuild(btime uint64) error {
	s.cpus = slices.Clone(s.now)
	start := int64(btime) * 1e9
	var series []metric.Series
	if s.usage {
		for _, cpu := range s.cpus {
			for _, state := range states {
				series = append(series, metric.Series{Desc: cpuUsage, Start: start, Values: []string{strconv.Itoa(cpu), state}})
			}
		}
		s.last = make([]uint64, len(series))
	}
	if s.cores {
		series = append(series, metric.Series{Desc: cpuCores, Start: start})
	}
	schema, err := metric.NewSchema(s.Name(), series)
	s.schema = schema
	return err
}

var errStat = errors.New("/proc/stat is not as proc(5) has it")

// parse reads the lines "cpuN user nice system idle iowait irq softirq steal
// guest guest_nice" and "btime seconds".
func (s *Stat) parse(text []byte) (btime uint64, err error) {
	s.now, s.times = s.now[:0], s.times[:0]
	for len(text) > 0 {
		line := text
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			line, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		var ok bool
		if rest, is := bytes.CutPrefix(line, []byte("cpu")); is && len(rest) > 0 && rest[0] != ' ' {
			if err := s.parseCPU(rest); err != nil {
				return 0, err
			}
		} else if rest, is := bytes.CutPrefix(line, []byte("btime ")); is {
			if btime, _, ok = number(rest); !ok {
				return 0, errStat
			}
		}
	}
	if len(s.now) == 0 || btime == 0 {
		return 0, errStat
	}
	return btime, nil
}

func (s *Stat) parseCPU(b []byte) error {
	cpu, b, ok := number(b)
	if !ok || len(s.now) > 0 && int(cpu) <= s.now[len(s.now)-1] {
		return errStat
	}
	var v [10]uint64
	for i := range v {
		if v[i], b, ok = number(b); !ok {
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
func (s *Stat) Close() error { return s.file.close() }
