// SPDX-License-Identifier: Apache-2.0

// Command bench measures what the probes cost the host: the time of a system
// call and of a context switch, bare and with each sampler on. All
// configurations are measured in turn, round after round, so that the machine
// is the same for all; the minimum and the median of the rounds are printed.
// Needs root and a CPU 0 that does little else.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"rezolus/internal/bpf"
	"rezolus/internal/host"
	"rezolus/internal/source/things"
	"rezolus/probes"
)

// configuration is a set of samplers that are on together.
type configuration struct {
	name     string
	samplers []string // nil: none; "*": all
	calls    []time.Duration
	switches []time.Duration
	status   []bpf.SamplerStatus
	kernel   uint64
}

func main() {
	if os.Getenv(pongEnv) != "" {
		pong()
		return
	}
	rounds := flag.Int("rounds", 12, "how often each configuration is measured")
	flag.Parse()
	if err := run(*rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(rounds int) error {
	debug.SetGCPercent(-1)
	pin()
	all := []*configuration{
		{name: "bare"},
		{name: "all", samplers: []string{"*"}},
		{name: "scheduler_runqueue", samplers: []string{"scheduler_runqueue"}},
		{name: "cpu_migrations", samplers: []string{"cpu_migrations"}},
		{name: "syscall_counts", samplers: []string{"syscall_counts"}},
		{name: "syscall_latency", samplers: []string{"syscall_latency"}},
	}
	p, err := startPipe()
	if err != nil {
		return err
	}
	for range rounds {
		for _, c := range all {
			if err := c.measure(p); err != nil {
				return err
			}
		}
	}
	report(all)
	if err := p.close(); err != nil {
		return err
	}
	if err := probeCosts(5 * time.Second); err != nil {
		return err
	}
	fmt.Println("\nthe agent with its live window, all default samplers, on this machine as it is:")
	for _, i := range []time.Duration{time.Second, 100 * time.Millisecond, 10 * time.Millisecond, time.Millisecond} {
		if err := agentCost("bin/rezolus", i, 15*time.Second); err != nil {
			return err
		}
	}
	return nil
}

var kernelTypes = bpf.NewCache()

// measure loads what the configuration wants, measures once and unloads.
func (c *configuration) measure(p *pipe) error {
	if c.samplers != nil {
		loaded, err := c.load()
		if err != nil {
			return err
		}
		defer loaded.close()
	}
	p.rounds(500)
	c.switches = append(c.switches, p.rounds(10_000))
	c.calls = append(c.calls, getppid(200_000))
	return nil
}

// loaded is a running probe with its cgroups.
type loaded struct {
	probe  *bpf.Probe
	things *things.Things
}

func (l *loaded) close() {
	l.probe.Close()
	l.things.Close()
}

func (c *configuration) load() (*loaded, error) {
	f, err := probes.Objects.Open("task/task.bpf.o")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	o, err := bpf.Parse("task", f.(interface {
		ReadAt([]byte, int64) (int, error)
	}))
	if err != nil {
		return nil, err
	}
	h := bpf.Host{Possible: host.Possible(), Online: host.Online(), Mono: host.Mono,
		Wall: func() int64 { return time.Now().UnixNano() }, KernelBTF: true}
	t, err := things.Track(things.Options{Host: h, MaxCgroups: 1024}, o)
	if err != nil {
		return nil, err
	}
	probe, err := o.Load(bpf.Options{Host: h, Slots: t.Slots, Cache: kernelTypes, Enabled: func(s string) bool {
		return c.samplers[0] == "*" || slices.Contains(c.samplers, s)
	}})
	if err != nil {
		return nil, err
	}
	for _, s := range probe.Status() {
		if s.State != bpf.Healthy && s.State != bpf.Disabled {
			return nil, fmt.Errorf("sampler %s is %s: %s", s.Name, s.State, s.Reason)
		}
	}
	c.status, c.kernel = probe.Status(), probe.KernelBytes()+t.KernelBytes()
	return &loaded{probe, t}, nil
}

func report(all []*configuration) {
	bare := all[0]
	fmt.Printf("%-20s %28s   %28s   %s\n", "", "getppid, ns", "half a pipe round, ns", "kernel")
	fmt.Printf("%-20s %8s %8s %10s   %8s %8s %10s   %8s\n", "samplers", "min", "median", "x bare", "min", "median", "x bare", "kB")
	for _, c := range all {
		fmt.Printf("%-20s %8d %8d %10.2f   %8d %8d %10.2f   %8d\n", c.name,
			slices.Min(c.calls), median(c.calls), ratio(slices.Min(c.calls), slices.Min(bare.calls)),
			slices.Min(c.switches), median(c.switches), ratio(slices.Min(c.switches), slices.Min(bare.switches)), c.kernel>>10)
	}
	fmt.Println("\ninstructions, all samplers on:")
	seen := map[string]bool{}
	for _, s := range all[1].status {
		for _, p := range s.Programs {
			if !seen[p.Name] {
				seen[p.Name] = true
				fmt.Printf("  %-12s %-24s %5d\n", p.Name, p.Hook, p.Instructions)
			}
		}
	}
}

func median(d []time.Duration) time.Duration {
	s := slices.SortedFunc(slices.Values(d), cmp.Compare)
	return s[len(s)/2]
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }
