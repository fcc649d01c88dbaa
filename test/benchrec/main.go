// SPDX-License-Identifier: Apache-2.0

// Command benchrec measures what recording costs: the CPU time of an agent and
// of the recorder that follows it, their memory, the ticks that are lost and the
// bytes that a tick takes, at several intervals, with the samplers that count
// with eBPF alone (and without a ring) and with all that are on by default (and
// the ring), on the machine as it is and under a mixed load. All are measured in turn, round
// after round, so that the machine is the same for all. Needs root and
// bin/rezolus.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rezolus/internal/bpf"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
	"rezolus/probes"
)

// measured is one recording.
type measured struct {
	agent, recorder time.Duration // CPU time while it goes on
	took            time.Duration // that while
	once            time.Duration // CPU time of the recorder for beginning and ending
	agentRSS        int64         // bytes
	recorderRSS     int64
	ticks, missed   uint64
	slept           uint64 // ticks that a thread missed which did nothing but sleep
	bytes           int64
}

// scene is what is measured again and again.
type scene struct {
	interval time.Duration
	load     bool
	ebpf     bool // nothing but what counts with eBPF
	all      []measured
}

func main() {
	binary := flag.String("binary", "bin/rezolus", "the binary to measure")
	seconds := flag.Int("seconds", 60, "length of a recording")
	rounds := flag.Int("rounds", 1, "how often each is measured")
	flag.Parse()
	if *seconds < 6 {
		*seconds = 6
	}
	if err := run(*binary, time.Duration(*seconds)*time.Second, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "benchrec:", err)
		os.Exit(1)
	}
}

func run(binary string, length time.Duration, rounds int) error {
	dir, err := os.MkdirTemp("", "benchrec")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var scenes []*scene
	for _, ebpf := range []bool{true, false} {
		for _, load := range []bool{false, true} {
			for _, i := range []time.Duration{time.Second, 10 * time.Millisecond, time.Millisecond} {
				scenes = append(scenes, &scene{interval: i, load: load, ebpf: ebpf})
			}
		}
	}
	for range rounds {
		for _, s := range scenes {
			m, err := s.measure(binary, dir, length)
			if err != nil {
				return err
			}
			s.all = append(s.all, m)
			fmt.Fprint(os.Stderr, ".")
		}
	}
	fmt.Fprintln(os.Stderr)
	print(scenes)
	return nil
}

// measure makes one recording with an agent of its own.
func (s *scene) measure(binary, dir string, length time.Duration) (m measured, err error) {
	agent, url, err := s.startAgent(binary, dir)
	if err != nil {
		return m, err
	}
	defer func() {
		_ = agent.Process.Signal(syscall.SIGTERM)
		_ = agent.Wait() // how it ends is no matter
	}()
	if s.load {
		ctx, cancel := context.WithCancel(context.Background())
		ended, err := startLoad(ctx, dir)
		if err != nil {
			cancel()
			return m, err
		}
		defer func() { cancel(); <-ended }()
	}
	out := filepath.Join(dir, "x.rzr")
	defer os.Remove(out)
	record := exec.Command(binary, "record", "--url", url, "-i", s.interval.String(), "-d", length.String(), "-o", out)
	var said strings.Builder
	record.Stderr = &said
	if err := record.Start(); err != nil {
		return m, err
	}
	sleeper := startSleeper(s.interval)
	time.Sleep(settle)
	err = m.watch(agent.Process.Pid, record.Process.Pid, length-2*settle)
	if err := errors.Join(err, record.Wait()); err != nil {
		return m, fmt.Errorf("record: %w: %s", err, &said)
	}
	m.slept = sleeper.stop()
	m.once = record.ProcessState.UserTime() + record.ProcessState.SystemTime() - m.recorder*length/m.took
	m.recorderRSS = record.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	if m.agentRSS, err = residentSize(agent.Process.Pid); err != nil {
		return m, err
	}
	rec, err := store.Open(vfs.OS, out)
	if err != nil {
		return m, err
	}
	defer rec.Close()
	info := rec.Info()
	m.ticks, m.missed, m.bytes = info.Ticks, info.Missed, info.Bytes
	return m, nil
}

// settle is how long beginning and ending are left to themselves.
const settle = 2 * time.Second

// watch measures what the two take for a while.
func (m *measured) watch(agent, recorder int, length time.Duration) error {
	began := time.Now()
	var before, after [2]time.Duration
	var errs []error
	for i, pid := range []int{agent, recorder} {
		var err error
		before[i], err = cpuTime(pid)
		errs = append(errs, err)
	}
	time.Sleep(length)
	for i, pid := range []int{agent, recorder} {
		var err error
		after[i], err = cpuTime(pid)
		errs = append(errs, err)
	}
	m.took = time.Since(began)
	m.agent, m.recorder = after[0]-before[0], after[1]-before[1]
	return errors.Join(errs...)
}

// startAgent runs an agent that sheds nothing, and waits until it serves.
func (s *scene) startAgent(binary, dir string) (*exec.Cmd, string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	address := l.Addr().String()
	l.Close()
	config := filepath.Join(dir, "agent.toml")
	text := fmt.Sprintf("[general]\nlisten = %q\n[log]\nlevel = \"error\"\n[budget]\ncpu = \"100%%\"\nmemory = \"1GiB\"\n", address)
	if s.ebpf {
		more, err := ebpfAlone()
		if err != nil {
			return nil, "", err
		}
		text += more
	} else {
		text += fmt.Sprintf("[hindsight]\npath = %q\n", filepath.Join(dir, "ring"))
	}
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, "", err
	}
	agent := exec.Command(binary, config)
	agent.Stderr = os.Stderr
	if err := agent.Start(); err != nil {
		return nil, "", err
	}
	url := "http://" + address
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(100 * time.Millisecond) {
		r, err := http.Get(url + "/status")
		if err != nil {
			continue
		}
		r.Body.Close()
		time.Sleep(2 * time.Second) // what starting takes is not recording
		return agent, url, nil
	}
	_ = agent.Process.Kill() // it may have ended
	return nil, "", fmt.Errorf("the agent does not serve at %s", url)
}

// ebpfAlone configures an agent with the samplers of the built-in probes alone.
func ebpfAlone() (string, error) {
	text := "[hindsight]\nenabled = false\n[defaults]\nenabled = false\n"
	objects, err := fs.Glob(probes.Objects, "*/*.bpf.o")
	if err != nil {
		return "", err
	}
	for _, name := range objects {
		elf, err := fs.ReadFile(probes.Objects, name)
		if err != nil {
			return "", err
		}
		o, err := bpf.Parse(path.Base(name), bytes.NewReader(elf))
		if err != nil {
			return "", err
		}
		if path.Dir(name) == "usercall" {
			continue // of functions that the configuration names
		}
		for _, sampler := range o.Samplers() {
			text += fmt.Sprintf("[samplers.%s]\nenabled = true\n", sampler)
		}
	}
	return text, nil
}

// cpuTime is the CPU time a process has had: the first number of schedstat,
// nanoseconds, summed over its threads (Documentation/scheduler/sched-stats).
// One that ends meanwhile is not in the sum; these processes keep theirs.
func cpuTime(pid int) (sum time.Duration, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		return 0, fmt.Errorf("process %d has no threads: %w", pid, err)
	}
	for _, name := range threads {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it ended
		}
		field, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n)
	}
	return sum, nil
}

// residentSize is VmRSS of /proc/PID/status.
func residentSize(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kB, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kB << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmRSS", pid)
}

// best is the round in which the two took least.
func (s *scene) best() measured {
	return slices.MinFunc(s.all, func(a, b measured) int { return cmp.Compare(a.agent+a.recorder, b.agent+b.recorder) })
}

func print(scenes []*scene) {
	fmt.Printf("%-8s %-6s %-5s  %22s  %8s %6s %8s  %9s %9s  %8s  %6s\n", "samplers", "every", "load", "CPU of one core", "ticks", "lost", "sleeper", "agent", "recorder", "bytes", "once")
	fmt.Printf("%-8s %-6s %-5s  %7s %7s %6s  %8s %6s %8s  %9s %9s  %8s  %6s\n", "", "", "", "agent", "record", "sum", "", "", "lost", "RSS", "RSS", "a tick", "CPU")
	for _, s := range scenes {
		m := s.best()
		share := func(d time.Duration) float64 { return 100 * d.Seconds() / m.took.Seconds() }
		var lost, slept uint64
		for _, each := range s.all {
			lost, slept = lost+each.missed, slept+each.slept
		}
		samplers, load := "all", "none"
		if s.ebpf {
			samplers = "eBPF"
		}
		if s.load {
			load = "mixed"
		}
		fmt.Printf("%-8s %-6v %-5s  %6.2f%% %6.2f%% %5.2f%%  %8d %6d %8d  %6.1f MB %6.1f MB  %8.0f  %3d ms\n", samplers, s.interval, load, share(m.agent), share(m.recorder),
			share(m.agent+m.recorder), m.ticks, lost, slept, float64(m.agentRSS)/1e6, float64(m.recorderRSS)/1e6, float64(m.bytes)/float64(max(1, m.ticks)), m.once.Milliseconds())
	}
	fmt.Print(`
the original (5.15.0) on the machine of docs/journal, for scale: 31 ms of CPU a
tick (agent 4, recorder 27), 60 % of a core at 50 ms, half of all ticks lost at
10 ms, 133 MB RSS, 1,460 bytes a tick of Parquet at 50 ms idle, 3,300 at 1 s
under a mixed load, 17,000 a tick of .rez
goals, with eBPF: 1ms <= 10 % and no tick lost; 10ms <= 2 %; 1s <= 0.1 %; recorder <= 30 MB
`)
}
