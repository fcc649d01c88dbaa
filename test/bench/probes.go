// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/bpf"
	"rezolus/internal/host"
	"rezolus/internal/source/things"
	"rezolus/probes"
)

// probeCosts loads every built-in probe and prints what each of its programs
// takes while the machine does a little of everything, as the kernel measures
// it (some 20 ns of each run are the measuring).
func probeCosts(length time.Duration) error {
	objects, err := parseAll()
	if err != nil {
		return err
	}
	h := bpf.Host{Possible: host.Possible(), Online: host.Online(), Mono: host.Mono, Wall: host.Wall, KernelBTF: true}
	t, err := things.Track(things.Options{Host: h, MaxCgroups: 1024}, objects...)
	if err != nil {
		return err
	}
	defer t.Close()
	var loaded []*bpf.Probe
	for _, o := range objects {
		p, err := o.Load(bpf.Options{Host: h, Slots: t.Slots, Cache: kernelTypes})
		if err != nil {
			fmt.Printf("%s: %v\n", o.Name, err)
			continue
		}
		defer p.Close()
		loaded = append(loaded, p)
	}
	stats, err := bpf.Measure()
	if err != nil {
		return err
	}
	defer stats.Close()
	work(length)
	fmt.Printf("\n%-10s %-34s %10s %8s %13s %10s\n", "probe", "hook", "runs", "ns a run", "instructions", "kernel kB")
	total := t.KernelBytes()
	for _, p := range loaded {
		total += p.KernelBytes()
		printPrograms(p)
	}
	fmt.Printf("%-10s %-34s %10s %8s %13s %10d\n", "all", "", "", "", "", total>>10)
	return nil
}

func printPrograms(p *bpf.Probe) {
	seen := map[string]bool{}
	first := true
	for _, s := range p.Status() {
		for _, program := range s.Programs {
			if seen[program.Name] || program.State != bpf.Healthy {
				continue
			}
			seen[program.Name] = true
			each := "-"
			if program.RunCount > 0 {
				each = fmt.Sprint(program.RunTimeNs / program.RunCount)
			}
			name, kernel := "", ""
			if first {
				name, kernel, first = p.Name(), fmt.Sprint(p.KernelBytes()>>10), false
			}
			fmt.Printf("%-10s %-34s %10d %8s %13d %10s\n", name, program.Hook, program.RunCount, each, program.Instructions, kernel)
		}
	}
}

func parseAll() (all []*bpf.Object, err error) {
	files, err := fs.Glob(probes.Objects, "*/*.bpf.o")
	for _, name := range files {
		f, err := probes.Objects.Open(name)
		if err != nil {
			return nil, err
		}
		o, err := bpf.Parse(strings.TrimSuffix(name[strings.Index(name, "/")+1:], ".bpf.o"), f.(io.ReaderAt))
		f.Close()
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, err
}

// work does a little of everything: processes, files that are synced, system
// calls, sleeps.
func work(length time.Duration) {
	for end := time.Now().Add(length); time.Now().Before(end); {
		_ = exec.Command("/proc/self/exe", "-h").Run() // what it says is of no interest
		if f, err := os.CreateTemp("", "bench"); err == nil {
			for range 16 {
				_, _ = f.Write(make([]byte, 64<<10))
			}
			_ = errors.Join(f.Sync(), f.Close(), os.Remove(f.Name()))
		}
		for range 20_000 {
			unix.Getppid()
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// configured writes a configuration for an agent with this interval, without
// a budget that would have it do less.
func configured(interval time.Duration) (path string, err error) {
	f, err := os.CreateTemp("", "rezolus*.toml")
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintf(f, "[general]\nlisten = \"127.0.0.1:0\"\ninterval = %q\n[budget]\ncpu = \"100%%\"\nmemory = \"4GiB\"\n[hindsight]\nenabled = false\n", interval.String())
	return f.Name(), errors.Join(err, f.Close())
}

// agentCost runs the built agent by itself and prints what it took, after it
// has settled.
func agentCost(binary string, interval, length time.Duration) error {
	path, err := configured(interval)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	cmd := exec.Command(binary, path)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w; make build first", err)
	}
	defer cmd.Wait()
	defer cmd.Process.Signal(os.Interrupt)
	time.Sleep(4 * time.Second)
	before, err := spent(cmd.Process.Pid)
	if err != nil {
		return err
	}
	time.Sleep(length)
	after, err := spent(cmd.Process.Pid)
	if err != nil {
		return err
	}
	fmt.Printf("%-10v %8.2f ms of CPU a second (%5.2f %% of a CPU), %6.1f MB resident\n", interval,
		float64(after.cpu-before.cpu)/1e6/length.Seconds(), 100*float64(after.cpu-before.cpu)/float64(length), float64(after.resident)/1e6)
	return nil
}

type usage struct {
	cpu      time.Duration
	resident int64
}

// spent is what a process has used: the CPU time of its threads (proc(5), in
// steps of 10 ms) and its resident set.
func spent(pid int) (u usage, err error) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return u, err
	}
	for _, t := range threads {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", pid, t.Name()))
		if err != nil {
			continue // it ended
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		var ticks [2]int64
		for i := range ticks {
			_, _ = fmt.Sscan(fields[11+i], &ticks[i])
		}
		u.cpu += time.Duration(ticks[0]+ticks[1]) * 10 * time.Millisecond
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return u, err
	}
	fields := strings.Fields(string(text))
	if len(fields) > 1 {
		_, _ = fmt.Sscan(fields[1], &u.resident)
	}
	u.resident *= int64(os.Getpagesize())
	return u, nil
}
