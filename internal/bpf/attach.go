// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// attached is a hook with the program that was attached, or with the reasons
// why none could be.
type attached struct {
	hook
	program *ebpf.Program                          // nil: no rung held
	link    link.Link                              // nil: it is shed, or no rung held
	hold    func(*ebpf.Program) (link.Link, error) // attaches where program is
	rung    string                                 // the program's name in the object
	section string                                 // of the rung that holds
	spent   Cost                                   // of programs that ran here before this one
	tried   []Attempt                              // rungs that did not
}

// Attempt is a rung of the ladder that did not hold.
type Attempt struct {
	Hook   string `json:"hook"`
	Reason string `json:"reason"`
	// Unsupported: this kernel cannot, whoever asks. Otherwise it may be a
	// defect or a missing right.
	Unsupported bool `json:"unsupported"`
}

// attach tries the hook's rungs, best first.
func (p *Probe) attach(h hook, spec *ebpf.CollectionSpec, opts Options) *attached {
	a := &attached{hook: h}
	for _, rung := range h.rungs {
		err := p.try(a, rung, spec, opts)
		if err == nil {
			return a
		}
		failed := Attempt{rung.SectionName, Explain(err), unsupported(err)}
		if !slices.Contains(a.tried, failed) { // two programs of one kind
			a.tried = append(a.tried, failed)
		}
	}
	return a
}

func (p *Probe) try(a *attached, rung *ebpf.ProgramSpec, spec *ebpf.CollectionSpec, opts Options) error {
	kind, _, _ := strings.Cut(rung.SectionName, "/")
	if needsKernelBTF(kind) && !opts.Host.KernelBTF {
		return fmt.Errorf("%w: the kernel has no BTF of its own (CONFIG_DEBUG_INFO_BTF)", ebpf.ErrNotSupported)
	}
	if kind == "tp" || kind == "tracepoint" || strings.HasPrefix(kind, "k") {
		mountTracefs()
	}
	program, err := p.loadProgram(spec, rung.Name, opts)
	if err != nil {
		return err
	}
	a.hold = func(p *ebpf.Program) (link.Link, error) { return attachProgram(kind, rung.AttachTo, p) }
	l, err := a.hold(program)
	if err != nil {
		program.Close()
		return fmt.Errorf("attach: %w", err)
	}
	a.program, a.link, a.rung, a.section = program, l, rung.Name, rung.SectionName
	return nil
}

// detach ends the runs of the program and keeps it.
func (a *attached) detach() error {
	if a.link == nil {
		return nil
	}
	err := a.link.Close()
	a.link = nil
	return err
}

// needsKernelBTF tells for which kinds the kernel itself must know the types.
// tp_btf and fentry came with Linux 5.5.
func needsKernelBTF(kind string) bool {
	return kind == "tp_btf" || kind == "fentry" || kind == "fexit"
}

// mostReturns is how many threads can be in a function of which a kretprobe sees
// them all return: the most that the kernel takes (kernel/trace/trace_kprobe.c,
// KRETPROBE_MAXACTIVE_MAX). By itself it takes as many as there are CPUs, and so
// many threads waiting in read(2) would hide all other reads.
const mostReturns = 4096

func attachProgram(kind, to string, program *ebpf.Program) (link.Link, error) {
	switch kind {
	case "tp_btf", "fentry", "fexit":
		return link.AttachTracing(link.TracingOptions{Program: program})
	case "raw_tp", "raw_tracepoint":
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: to, Program: program})
		if errors.Is(err, unix.EINVAL) { // __bpf_probe_register
			err = errFewerArguments
		}
		return l, err
	case "tp", "tracepoint":
		group, name, _ := strings.Cut(to, "/")
		return link.Tracepoint(group, name, program, nil)
	case "kprobe":
		return link.Kprobe(to, program, nil)
	case "kretprobe":
		return link.Kretprobe(to, program, &link.KprobeOptions{RetprobeMaxActive: mostReturns})
	}
	return nil, fmt.Errorf("no way to attach %s", kind)
}

// mountTracefs mounts tracefs where nobody has: classic tracepoints and
// kprobes are named by files in it. Where it cannot be mounted the attach
// fails and says so.
func mountTracefs() {
	const at = "/sys/kernel/tracing"
	if _, err := os.Stat(at + "/events"); err == nil {
		return
	}
	_ = unix.Mount("tracefs", at, "tracefs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

func (a *attached) close() error {
	errs := []error{a.detach()}
	if a.program != nil {
		errs = append(errs, a.program.Close())
	}
	return errors.Join(errs...)
}
