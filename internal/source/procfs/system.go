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
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

const machine = "system"

var (
	load = floatOf(machine, "scheduler_load", metric.None,
		"load average: tasks that ran, could have run or waited for a disk, averaged by the kernel", "window")
	tasks = gaugeOf(machine, "scheduler_tasks", metric.None,
		"tasks that run or could run, or that wait for a disk (blocked)", "state")
	threads      = gaugeOf(machine, "system_threads", metric.None, "tasks there are, each thread one")
	threadsLimit = gaugeOf(machine, "system_threads_limit", metric.None, "most tasks there can be (kernel.threads-max)")
	pidsLimit    = gaugeOf(machine, "system_pids_limit", metric.None, "number that no process number reaches (kernel.pid_max)")
	forks        = counterOf(machine, "system_forks", metric.None, "tasks that were made, each thread one")
	switches     = counterOf(machine, "system_context_switches", metric.None, "context switches of all CPUs, those to the idle task too")
	bootTime     = gaugeOf(machine, "system_boot_time", metric.Nanoseconds, "when the machine started, in Unix time, by the clock as it is set now")
	uptime       = counterOf(machine, "system_uptime", metric.Nanoseconds, "time since the machine started, that in suspend too")
	entropy      = gaugeOf(machine, "system_entropy", "bits", "entropy that the kernel's random number generator has")
	fileHandles  = gaugeOf(machine, "file_handles", metric.None, "open files that the kernel has, and the most it makes (fs.file-max)", "state")
	inodes       = gaugeOf(machine, "system_inodes", metric.None, "inodes in memory", "state")
	dentries     = gaugeOf(machine, "system_dentries", metric.None,
		"names of files in memory: used, unused, and unused ones that say there is no such file (negative)", "state")
)

// numbersRow is a series from a file that is one line of numbers.
type numbersRow struct {
	file   string // below /proc
	at     int    // which number
	desc   *metric.Desc
	values []string
	less   int // which number is counted in this one too and is taken out of it; 0: none
}

// numbersTable is in the order of the files. The form of those below sys/fs is
// in Documentation/admin-guide/sysctl/fs.rst, of loadavg in proc_loadavg(5). A
// number with a point counts in hundredths.
var numbersTable = []numbersRow{
	{file: "loadavg", at: 0, desc: load, values: []string{"1m"}},
	{file: "loadavg", at: 1, desc: load, values: []string{"5m"}},
	{file: "loadavg", at: 2, desc: load, values: []string{"15m"}},
	{file: "loadavg", at: 4, desc: threads},
	{file: "sys/kernel/threads-max", at: 0, desc: threadsLimit},
	{file: "sys/kernel/pid_max", at: 0, desc: pidsLimit},
	{file: "sys/kernel/random/entropy_avail", at: 0, desc: entropy},
	{file: "sys/fs/file-nr", at: 0, desc: fileHandles, values: []string{"allocated"}},
	{file: "sys/fs/file-nr", at: 2, desc: fileHandles, values: []string{"max"}},
	{file: "sys/fs/inode-nr", at: 0, desc: inodes, values: []string{"used"}, less: 1},
	{file: "sys/fs/inode-nr", at: 1, desc: inodes, values: []string{"unused"}},
	{file: "sys/fs/dentry-state", at: 0, desc: dentries, values: []string{"used"}, less: 1},
	{file: "sys/fs/dentry-state", at: 1, desc: dentries, values: []string{"unused"}, less: 4},
	{file: "sys/fs/dentry-state", at: 4, desc: dentries, values: []string{"negative"}},
}

// statTable are the lines of /proc/stat after those of the CPUs.
var statTable = []struct {
	key    string
	desc   *metric.Desc
	values []string
	scale  uint64
}{
	{"ctxt ", switches, nil, 1},
	{"btime ", bootTime, nil, 1e9},
	{"processes ", forks, nil, 1},
	{"procs_running ", tasks, []string{"running"}, 1},
	{"procs_blocked ", tasks, []string{"blocked"}, 1},
}

// System is the source of what the kernel says about the machine in single
// numbers.
type System struct {
	stat   *source.File
	files  []numbersFile
	schema *metric.Schema
}

type numbersFile struct {
	*source.File
	rows []numbersRow
}

// NewSystem opens the files below proc. Those that a kernel does not have are
// left out, but for stat.
func NewSystem(proc string) (*System, error) {
	stat, err := source.OpenFile(filepath.Join(proc, "stat"))
	if err != nil {
		return nil, err
	}
	s := &System{stat: stat}
	for i := 0; i < len(numbersTable); {
		name, first := numbersTable[i].file, i
		for i < len(numbersTable) && numbersTable[i].file == name {
			i++
		}
		f, err := source.OpenFile(filepath.Join(proc, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.files = append(s.files, numbersFile{f, numbersTable[first:i]})
	}
	return s, s.layOut()
}

func (s *System) layOut() error {
	series := []metric.Series{{Desc: uptime, Start: host.BootTime()}}
	add := func(d *metric.Desc, values []string) {
		one := metric.Series{Desc: d, Values: values}
		if d.Kind == metric.Counter {
			one.Start = host.BootTime()
		}
		series = append(series, one)
	}
	for _, row := range statTable {
		add(row.desc, row.values)
	}
	for _, f := range s.files {
		for _, row := range f.rows {
			add(row.desc, row.values)
		}
	}
	schema, err := metric.NewSchema(s.Name(), series)
	s.schema = schema
	return err
}

// Name is "system".
func (s *System) Name() string { return machine }

// Read fills f without allocating.
func (s *System) Read(f *metric.Frame) error {
	f.Schema, f.Lost = s.schema, 0
	f.Resize(s.schema.Words)
	f.Begin = host.Mono()
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return fmt.Errorf("read the uptime: %w", err)
	}
	to := append(f.Values[:0], uint64(up.Nano()))
	text, err := s.stat.Read()
	if err != nil {
		return err
	}
	if to = appendStat(to, text); to == nil {
		return errStat
	}
	for i := range s.files {
		file := &s.files[i]
		text, err := file.Read()
		if err != nil {
			return err
		}
		if to = appendNumbers(to, text, file.rows); to == nil {
			return fmt.Errorf("read %s: not the numbers that proc(5) has: %q", file.rows[0].file, text)
		}
	}
	f.End = host.Mono()
	return nil
}

// appendStat appends the values of statTable, or is nil if one is not there.
func appendStat(to []uint64, text []byte) []uint64 {
	first := len(to)
	for range statTable {
		to = append(to, 0)
	}
	found := uint(0) // a bit a row
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, newline)
		for i := range statTable {
			row := &statTable[i]
			if len(line) <= len(row.key) || string(line[:len(row.key)]) != row.key {
				continue
			}
			n, rest, ok := source.Number(line[len(row.key):])
			if !ok || len(rest) > 0 {
				return nil
			}
			to[first+i] = n * row.scale
			found |= 1 << i
		}
	}
	if found != 1<<len(statTable)-1 {
		return nil
	}
	return to
}

// appendNumbers appends the values of the rows of a line of numbers, or is nil
// if the line is another.
func appendNumbers(to []uint64, text []byte, rows []numbersRow) []uint64 {
	var numbers [8]uint64
	count := 0
	for ; count < len(numbers); count++ {
		for len(text) > 0 && (text[0] == ' ' || text[0] == '\t' || text[0] == '/') {
			text = text[1:]
		}
		n, rest, ok := source.Number(text)
		if !ok {
			break
		}
		if len(rest) > 2 && rest[0] == '.' {
			part, after, ok := source.Number(rest[1:])
			if !ok || len(rest)-len(after) != 3 {
				return nil
			}
			n, rest = n*100+part, after
		}
		numbers[count], text = n, rest
	}
	if len(text) == 0 || text[0] != '\n' {
		return nil
	}
	for _, row := range rows {
		if row.at >= count || row.less >= count {
			return nil
		}
		n := numbers[row.at]
		if row.less > 0 {
			// Both are sums over CPUs that go on counting meanwhile.
			n -= min(n, numbers[row.less])
		}
		if row.desc.Float {
			n = math.Float64bits(float64(n) / 100)
		}
		to = append(to, n)
	}
	return to
}

// Close closes the files.
func (s *System) Close() error {
	err := s.stat.Close()
	for _, f := range s.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// A read takes 13 us on 2 CPUs, and longer the more CPUs and interrupts there
// are, which /proc/stat has one by one (BenchmarkSamplers).
func systemSampler() source.Sampler {
	descs := []*metric.Desc{uptime, switches, bootTime, forks, tasks}
	for _, row := range numbersTable {
		if !slices.Contains(descs, row.desc) {
			descs = append(descs, row.desc)
		}
	}
	return source.Sampler{Name: machine, Reads: "/proc/{stat,loadavg}, /proc/sys/{kernel,fs}, clock_gettime(2)",
		Every: time.Second, Descs: descs,
		Open: func() (source.Source, error) { return NewSystem("/proc") }}
}
