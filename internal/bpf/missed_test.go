// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// printing attaches a program to two tracepoints: a task's new name, where it
// prints, and that something was printed, where it would print again. It does so
// for this process alone.
func printing(t *testing.T) *attached {
	t.Helper()
	enabled := printed(t)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "printing", Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{
		asm.FnGetCurrentPidTgid.Call(),
		asm.RSh.Imm(asm.R0, 32),
		asm.JNE.Imm(asm.R0, int32(os.Getpid()), "return"),
		asm.Mov.Imm(asm.R1, 'x'),
		asm.StoreMem(asm.RFP, -8, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, -8),
		asm.Mov.Imm(asm.R2, 2), // with the zero
		asm.FnTracePrintk.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("return"),
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	a := &attached{hook: hook{name: "on_rename"}, program: program}
	t.Cleanup(func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
		// To load it let what programs print into the kernel's trace, soon.
		for deadline := time.Now().Add(10 * time.Second); printed(t) != "1" && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		}
		if err := os.WriteFile(printEvent, []byte(enabled), 0); err != nil {
			t.Error(err)
		}
	})
	for _, at := range []string{"bpf_trace_printk", "task_rename"} {
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: at, Program: program})
		if err != nil {
			t.Fatal(err)
		}
		if a.link == nil {
			a.link = l
		} else {
			t.Cleanup(func() { l.Close() })
		}
	}
	return a
}

const printEvent = "/sys/kernel/tracing/events/bpf_trace/bpf_trace_printk/enable"

// printed is "1" while what programs print gets into the kernel's trace.
func printed(t *testing.T) string {
	t.Helper()
	mountTracefs()
	text, err := os.ReadFile(printEvent)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// The kernel does not run a program that is running already.
func TestWhatTheKernelDoesNotRunIsCounted(t *testing.T) {
	// 05b24ff9b2cf (6.1) made the kernel see to that at tracepoints. Before, it hangs.
	if version := release(t); version[0] < 6 || version[0] == 6 && version[1] < 2 {
		t.Skip("a program at a tracepoint may run in itself before Linux 6.2")
	}
	a := printing(t)
	p := &Probe{hooks: []*attached{a}}
	rename(t, 22) // and back
	if c := p.Costs(nil)[0]; c.Missed != 23 || !c.Counted {
		t.Errorf("%d runs were missed (counted: %v), want 23", c.Missed, c.Counted)
	}
	if s := a.status(); s.Missed != 23 {
		t.Errorf("the status has %d runs missed, want 23", s.Missed)
	}
	a.spent = a.cost()
	if c, s := a.cost(), a.status(); c.Missed != 46 || s.Missed != 46 {
		t.Errorf("with a program like it before, %d and %d runs were missed, want 46", c.Missed, s.Missed)
	}
}

// release is the first two numbers of the kernel's version.
func release(t *testing.T) (numbers [2]int) {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, c := range unix.ByteSliceToString(u.Release[:]) {
		switch {
		case c >= '0' && c <= '9':
			numbers[at] = 10*numbers[at] + int(c-'0')
		case at == 1 || c != '.':
			return numbers
		default:
			at++
		}
	}
	return numbers
}

// Whether a kernel counts is what its own types say.
func TestAKernelThatCountsMisses(t *testing.T) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var info *btf.Struct
	if err := kernel.TypeByName("bpf_prog_info", &info); err != nil {
		t.Fatal(err)
	}
	want := false
	for _, m := range info.Members {
		want = want || m.Name == "recursion_misses"
	}
	p := load(t, "rename", Options{Slots: []*Slots{newCgroups(t, 4)}})
	for _, c := range p.Costs(nil) {
		if c.Counted != want || c.Missed != 0 {
			t.Errorf("%s: counted %v, %d missed; the kernel counts: %v", c.Program, c.Counted, c.Missed, want)
		}
	}
}
