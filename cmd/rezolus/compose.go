// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rezolus/internal/agent"
	"rezolus/internal/analyze"
	"rezolus/internal/bpf"
	"rezolus/internal/config"
	"rezolus/internal/hindsight"
	"rezolus/internal/host"
	"rezolus/internal/source/things"
	"rezolus/probes"
)

// house is everything that measures, put together as a configuration says.
type house struct {
	config   *config.Config
	log      *slog.Logger
	host     bpf.Host
	objects  []*bpf.Object
	probes   []*bpf.Probe
	failed   []bpf.SamplerStatus // of probes that did not load at all
	things   *things.Things
	refused  error // why there are none: the kernel takes no BPF from us
	trackers []*host.Cgroups
	sources  []reading
	others   []bpf.SamplerStatus // samplers that are no probes
	overhead *overhead           // nil until it serves
	ledger   *analyze.Ledger     // nil: off
	rings    *rings
}

// build loads the probes and opens the files of the samplers that are on. It
// fails only for a wrong configuration: a probe that cannot run is said in the
// status.
func build(c *config.Config, log *slog.Logger) (*house, error) {
	h := &house{config: c, log: log, host: bpf.Host{Possible: host.Possible(), Online: host.Online(),
		Mono: host.Mono, Wall: host.Wall}}
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err == nil {
		h.host.KernelBTF = true
	}
	if c.General.BTFPath != "" {
		spec, err := bpf.ReadTypes(c.General.BTFPath)
		if err != nil {
			return nil, hint(fmt.Errorf("read general.btf_path %s: %w", c.General.BTFPath, err),
				"it must be the BTF of this very kernel, as `pahole --btf_encode_detached` or btfhub make it")
		}
		h.host.BTF = spec
	}
	if err := h.findProbes(); err != nil {
		return nil, err
	}
	known := []string{cpuUsage, cpuCores, rusage, ledger, hindsight.Sampler}
	plain := h.plain()
	for _, s := range plain {
		known = append(known, s.Name)
	}
	for _, o := range h.objects {
		known = append(known, o.Samplers()...)
	}
	if err := c.CheckSamplers(known); err != nil {
		return nil, usage{err}
	}
	h.things, h.refused = things.Track(things.Options{Host: h.host, MaxCgroups: c.Cgroups.Max,
		Cgroups: h.track(host.CgroupMode().Mount), Log: log}, h.objects...)
	h.trackFunctions()
	h.loadProbes()
	h.openPlain(plain)
	return h, nil
}

// findProbes reads the built-in objects, then the user's.
func (h *house) findProbes() error {
	err := fs.WalkDir(probes.Objects, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := probes.Objects.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		return h.parse(path.Base(name), f.(io.ReaderAt))
	})
	if err != nil {
		return err
	}
	own, err := filepath.Glob(filepath.Join(h.config.Probes.Directory, "*.bpf.o"))
	if err != nil {
		return err
	}
	for _, name := range own {
		if err := h.parseOwn(name); err != nil {
			return hint(err, "remove it from %s, or see docs/probes.md", h.config.Probes.Directory)
		}
	}
	return nil
}

// parseOwn reads a user's probe. What runs in the kernel with the agent's
// rights must be writable by root alone.
func (h *house) parseOwn(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("probe %s can be changed by others than its owner (%v)", name, info.Mode().Perm())
	}
	if info.Size() > 16<<20 {
		return fmt.Errorf("probe %s has %d bytes; at most 16 MiB are read", name, info.Size())
	}
	return h.parse(filepath.Base(name), f)
}

func (h *house) parse(file string, elf io.ReaderAt) error {
	o, err := bpf.Parse(strings.TrimSuffix(file, ".bpf.o"), elf)
	if err == nil {
		h.objects = append(h.objects, o)
	}
	return err
}

func (h *house) track(mount string) *host.Cgroups {
	if mount == "" {
		return nil
	}
	for _, t := range h.trackers {
		if t.Mount() == mount {
			return t
		}
	}
	t, err := host.TrackCgroups(host.CgroupOptions{Mount: mount, Log: h.log})
	if err != nil {
		h.log.Warn("cgroups are not told apart", "error", err)
		return nil
	}
	h.trackers = append(h.trackers, t)
	return t
}

func (h *house) loadProbes() {
	cache := bpf.NewCache()
	for _, o := range h.objects {
		err := h.refused
		var p *bpf.Probe
		if err == nil {
			p, err = o.Load(bpf.Options{Host: h.host, Enabled: h.config.Enabled, Slots: h.things.Slots, Functions: h.functions(), Cache: cache})
		}
		if err != nil {
			for _, s := range o.Samplers() {
				h.failed = append(h.failed, bpf.SamplerStatus{Name: s, State: bpf.Failed, Reason: bpf.Explain(err)})
			}
			continue
		}
		h.probes = append(h.probes, p)
		if s := p.Source(); s != nil {
			h.sources = append(h.sources, reading{Source: s})
		}
	}
	if h.things != nil {
		for _, s := range h.things.Sources() {
			h.sources = append(h.sources, reading{Source: s})
		}
	}
}

// samplers is how each sampler fares, sorted by name.
func (h *house) samplers() []bpf.SamplerStatus {
	all := append(slices.Clone(h.failed), h.others...)
	for _, p := range h.probes {
		all = append(all, p.Status()...)
	}
	h.overhead.mark(all)
	slices.SortFunc(all, func(a, b bpf.SamplerStatus) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// kernelBytes is the kernel memory of everything loaded.
func (h *house) kernelBytes() uint64 {
	var sum uint64
	for _, p := range h.probes {
		sum += p.KernelBytes()
	}
	if h.things != nil {
		sum += h.things.KernelBytes()
	}
	return sum
}

// newAgent gives the sources to an agent.
func (h *house) newAgent() *agent.Agent {
	kernel := h.kernelBytes() // does not change once loaded
	self := agent.Self{Off: !h.config.Enabled(rusage), KernelMemory: func() uint64 { return kernel }}
	if measuresAlways() {
		self.Programs = h.programs
	}
	a := agent.New(agent.Options{Run: host.NewRun(version), Log: h.log, Self: self,
		Realtime: time.Duration(h.config.General.Realtime)})
	for _, s := range h.sources {
		a.Add(s.Source, s.SourceOptions)
	}
	return a
}

// close closes what the agent does not.
func (h *house) close() error {
	var errs []error
	for _, t := range h.trackers {
		errs = append(errs, t.Close())
	}
	if h.things != nil {
		errs = append(errs, h.things.StopFollowing())
	}
	for _, p := range h.probes {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}
