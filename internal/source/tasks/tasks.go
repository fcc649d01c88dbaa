// SPDX-License-Identifier: Apache-2.0

// Package tasks reads the CPU time of the tasks of the machine, each thread
// one, from /proc/PID/task/TID/stat, and shows those that use most.
//
// What is not shown is in a sum, so that all together is the machine's:
//
//	Σ task_cpu_usage + task_cpu_usage_ended = busy time of /proc/stat
//
// where one of the task_cpu_usage is "other": tasks that are not shown,
// tasks that lived and died between two reads, and interrupts. Both sides are
// the kernel's, but it measures the time of a task by its scheduler and the
// time of a CPU, unless it is built otherwise, by which task its tick finds,
// so other stands still while the tasks that are shown are ahead of the CPUs,
// and takes that off again later.
package tasks

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

const sampler = "task_cpu_usage"

var (
	usage = &metric.Desc{Name: "task_cpu_usage", Help: "CPU time of the tasks that use most, and of all others in one (other)",
		Unit: metric.Nanoseconds, Kind: metric.Counter, Keys: []string{"cgroup", "comm", "pid", "tgid"}, Sampler: sampler}
	ended = &metric.Desc{Name: "task_cpu_usage_ended", Help: "CPU time that tasks were shown with which are gone or no longer shown",
		Unit: metric.Nanoseconds, Kind: metric.Counter, Sampler: sampler}
)

const (
	// tick is the unit of the times in nanoseconds: USER_HZ is 100 on the
	// architectures that the agent is built for (proc(5)).
	tick = 10_000_000
	// defaultShown is how many tasks are shown.
	defaultShown = 64
	// most is how many processes, and threads of one, are looked at.
	most = 1 << 16
)

// Tasks is the source of the CPU time of tasks.
//
// It reads the time of every process and, only of those that used some, that
// of each thread. A task is shown from the read on by which it is among those
// that used most since the one before, and stays until it dies, changes its
// name, or another uses much more than it lately did. Its counter has what it
// used since the read before, or since its birth if that came later.
type Tasks struct {
	walker
	proc      *os.File // /proc
	total     *source.File
	limit     int
	read      uint64 // number of this read
	last      int64  // when the one before was, by the wall clock
	processes map[int32]*process
	pids      []int32
	tids      []int32
	busy      []*task // not shown, used some since the last read
	shown     []*task
	ended     uint64 // in ticks, as all times here
	other     uint64
	schema    *metric.Schema // nil: others are shown than before
}

type process struct {
	seen  uint64 // the read in which it was there
	birth uint64
	ticks uint64
	tasks []*task
}

type task struct {
	pid, tgid int32
	seen      uint64 // the read that found its process to have used some
	birth     uint64
	comm      []byte
	ticks     uint64
	used      uint64 // since the read before seen
	shown     bool
	base      uint64 // ticks when its series was 0
	told      uint64 // ticks of its series as they were read last
	lately    uint64 // ticks of late, half of them forgotten at each read
	start     int64
	labels    []string
}

// New is the source of the tasks in the file system at proc, of which up to
// limit are shown (0: 64).
func New(proc string, limit int) (*Tasks, error) {
	dir, err := os.Open(proc)
	if err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	total, err := source.OpenFile(filepath.Join(proc, "stat"))
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return &Tasks{proc: dir, total: total, limit: cmp.Or(limit, defaultShown), processes: map[int32]*process{}}, nil
}

// Name is "task_cpu_usage".
func (s *Tasks) Name() string { return sampler }

// Read fills f, without allocating while there are the same tasks.
func (s *Tasks) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	now := host.Wall()
	if err := s.walk(); err != nil {
		return fmt.Errorf("read tasks: %w", err)
	}
	text, err := s.total.Read()
	if err != nil {
		return err
	}
	total, ok := busyTime(text)
	if !ok {
		return errors.New("/proc/stat is not as proc(5) has it")
	}
	f.End = host.Mono()
	s.choose()
	s.last = now
	if s.schema == nil {
		if err := s.rebuild(); err != nil {
			return err
		}
	}
	f.Schema, f.Lost = s.schema, 0
	f.Resize(s.schema.Words)
	sum := s.ended
	for i, t := range s.shown {
		t.told = t.ticks - t.base
		f.Values[i] = t.told * tick
		sum += t.told
	}
	s.other = max(s.other, total-min(total, sum))
	f.Values[len(s.shown)], f.Values[len(s.shown)+1] = s.other*tick, s.ended*tick
	return nil
}

// walk brings the tasks up to date.
func (s *Tasks) walk() error {
	s.read++
	s.busy = s.busy[:0]
	var err error
	if s.pids, err = s.list(int(s.proc.Fd()), s.pids, most); err != nil {
		return err
	}
	for _, pid := range s.pids {
		now, ok := s.stat(int(s.proc.Fd()), pid)
		if !ok {
			continue
		}
		p := s.processes[pid]
		if p != nil && p.birth != now.birth {
			s.drop(pid, p)
			p = nil
		}
		if p == nil {
			p = &process{birth: now.birth}
			s.processes[pid] = p
		} else if p.ticks == now.ticks {
			p.seen = s.read
			continue
		}
		p.seen, p.ticks = s.read, now.ticks
		s.threads(pid, p)
	}
	for pid, p := range s.processes {
		if p.seen != s.read {
			s.drop(pid, p)
		}
	}
	return nil
}

// threads brings the tasks of a process up to date.
func (s *Tasks) threads(pid int32, p *process) {
	dir, err := s.open(int(s.proc.Fd()), pid, "task")
	if err != nil {
		return // it went away, and will be missed at the next read
	}
	defer unix.Close(dir)
	if s.tids, err = s.list(dir, s.tids, most); err != nil {
		return
	}
	for i, tid := range s.tids {
		now, ok := s.stat(dir, tid)
		if !ok {
			continue
		}
		t := p.find(i, tid, now.birth)
		if t == nil {
			t = &task{pid: tid, tgid: pid, birth: now.birth}
			p.tasks = append(p.tasks, t)
		}
		s.follow(t, now)
	}
	kept := p.tasks[:0]
	for _, t := range p.tasks {
		if t.seen == s.read {
			kept = append(kept, t)
		} else {
			s.retire(t)
		}
	}
	clear(p.tasks[len(kept):])
	p.tasks = kept
}

// find is the task that has the number and was born then, or nil. The kernel
// lists threads by age, so most are where they were before.
func (p *process) find(at int, tid int32, birth uint64) *task {
	if at < len(p.tasks) && p.tasks[at].pid == tid && p.tasks[at].birth == birth {
		return p.tasks[at]
	}
	for _, t := range p.tasks {
		if t.pid == tid && t.birth == birth {
			return t
		}
	}
	return nil
}

// drop forgets a process that is gone.
func (s *Tasks) drop(pid int32, p *process) {
	for _, t := range p.tasks {
		s.retire(t)
	}
	delete(s.processes, pid)
}

// busyTime is the time that all CPUs were not idle, in ticks, from the first
// line of /proc/stat: user, nice, system, idle, iowait, irq, softirq. What
// guests used is in user and nice; stolen time is nobody's here.
func busyTime(text []byte) (busy uint64, ok bool) {
	text, ok = bytes.CutPrefix(text, []byte("cpu "))
	if !ok {
		return 0, false
	}
	for field := range 7 {
		var n uint64
		if n, text, ok = source.Number(text); !ok {
			return 0, false
		}
		if field != 3 && field != 4 {
			busy += n
		}
	}
	return busy, true
}

// Close closes the files.
func (s *Tasks) Close() error { return errors.Join(s.proc.Close(), s.total.Close()) }

// Samplers are the sampler of the tasks. It is off by default, because its
// cost grows with the number of processes: about 3 us each, as measured with
// 105 (BenchmarkRead).
func Samplers() []source.Sampler {
	return []source.Sampler{{Name: sampler, Reads: "/proc/PID/stat, /proc/PID/task/TID/stat", Off: true,
		Every: time.Second, Descs: []*metric.Desc{usage, ended},
		Open: func() (source.Source, error) { return New("/proc", 0) }}}
}
