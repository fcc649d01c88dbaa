// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"rezolus/internal/bpf"
	"rezolus/internal/hist"
)

// caller measures functions in user space.
type caller struct {
	t     testing.TB
	probe *bpf.Probe
	slots []*bpf.Slots
}

func callsOf(t testing.TB, functions ...bpf.Function) *caller {
	t.Helper()
	o := parse(t, "usercall/usercall")
	slots, err := bpf.NewFunctionSlots(machine(), len(functions), o)
	if err != nil {
		t.Fatal(err)
	}
	c := &caller{t: t, slots: slots}
	if c.probe, err = o.Load(bpf.Options{Host: machine(), Slots: slots, Functions: functions}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, err := range []error{c.probe.Close(), slots[0].Close(), slots[1].Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return c
}

func (c *caller) read() reading {
	c.t.Helper()
	return read(c.t, c.slots[0], c.slots[1])
}

func (c *caller) status() bpf.SamplerStatus { return c.probe.Status()[0] }

func (c *caller) healthy() {
	c.t.Helper()
	if s := c.status(); s.State != bpf.Healthy {
		c.t.Fatalf("sampler %s is %s: %s", s.Name, s.State, s.Reason)
	}
	for _, p := range c.status().Programs {
		for _, tried := range p.Tried {
			if !tried.Unsupported {
				c.t.Errorf("%s: %s", tried.Hook, tried.Reason)
			}
		}
	}
}

//go:noinline
func calledKnownTimes(n int) int { return n * n }

// here is a function of this test.
func here(t testing.TB, symbol string) bpf.Function {
	t.Helper()
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return bpf.Function{Library: "test", Name: symbol, File: file, Symbol: "rezolus/test/truth." + symbol}
}

// program is the one of known calls, with a function each.
func program(t testing.TB, symbols ...string) (file string, functions []bpf.Function) {
	t.Helper()
	text, err := os.ReadFile("testdata/usercall." + runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "usercall")
	if err := os.WriteFile(file, text, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		functions = append(functions, bpf.Function{Library: "usercall", Name: s, File: file, Symbol: s, Timed: true})
	}
	return file, functions
}

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	return strings.TrimSpace(string(out))
}

func call(metric, library, function string) string {
	return fmt.Sprintf("%s{function=%s,library=%s}", metric, function, library)
}

func TestUsercallCountsAFunctionOfGo(t *testing.T) {
	c := callsOf(t, here(t, "calledKnownTimes"))
	c.healthy()
	before := c.read()
	before.want(t, call("usercall", "test", "calledKnownTimes"), 0)
	for i := range 101 {
		calledKnownTimes(i)
	}
	now := c.read()
	now.since(before).want(t, call("usercall", "test", "calledKnownTimes"), 101)
	if len(now) != 1 {
		t.Errorf("there are other series: %v", now)
	}
}

// TestUsercallTimesEveryCall runs testdata/usercall.c, several at once, so that
// stacks lie at the same addresses in several processes.
func TestUsercallTimesEveryCall(t *testing.T) {
	const programs = 3
	file, functions := program(t, "quick", "nap", "nest", "leap")
	functions = append(functions, bpf.Function{Library: "usercall", Name: "counted", File: file, Symbol: "over"})
	c := callsOf(t, functions...)
	c.healthy()
	var all sync.WaitGroup
	for range programs {
		all.Go(func() { run(t, file) })
	}
	all.Wait()
	d := c.read()
	for function, want := range map[string]struct{ calls, timed uint64 }{
		"quick": {1009, 1009},
		"nap":   {7, 7},
		// A task can have 64 returns under way that the kernel watches
		// (MAX_URETPROBE_DEPTH, kernel/events/uprobes.c).
		"nest": {3*50 + 100, 3*50 + 64},
		"leap": {11 + 5, 5}, // from the others there is no return
	} {
		d.want(t, call("usercall", "usercall", function), programs*want.calls)
		d.want(t, call("usercall_latency", "usercall", function), programs*want.timed)
		d.want(t, call("usercall_discarded_samples", "usercall", function), 0)
	}
	d.want(t, call("usercall", "usercall", "counted"), programs*11)
	if _, there := d[call("usercall_latency", "usercall", "counted")]; there {
		t.Error("a function that is not timed has a latency")
	}
	naps := d[call("usercall_latency", "usercall", "nap")]
	if early := hist.Count(naps[:hist.Default.Index(20e6)]); early != 0 {
		t.Errorf("%d naps took less than the 20 ms that they sleep", early)
	}
	// The others took no such time, but when something else had the CPU.
	quick := d[call("usercall_latency", "usercall", "quick")]
	if late := hist.Count(quick[hist.Default.Index(20e6):]); late > hist.Count(quick)/10 {
		t.Errorf("%d of the quick ones took more than 20 ms", late)
	}
}

// TestUsercallInsideAFunction counts an instruction that is not the first: the
// second.
func TestUsercallInsideAFunction(t *testing.T) {
	file, _ := program(t)
	offset := map[string]string{"amd64": "quick+0x7", "arm64": "quick+0x4"}[runtime.GOARCH]
	inside := bpf.Function{Library: "usercall", Name: "inside", File: file, Symbol: offset}
	c := callsOf(t, inside)
	c.healthy()
	run(t, file)
	c.read().want(t, call("usercall", "usercall", "inside"), 1009)

	inside.Timed = true
	c = callsOf(t, inside)
	if s := c.status(); s.State != bpf.Degraded || !strings.Contains(s.Reason, "take the offset off it, or set latency = false") {
		t.Errorf("sampler is %s: %s", s.State, s.Reason)
	}
	run(t, file)
	c.read().want(t, call("usercall", "usercall", "inside"), 1009)
}

func TestUsercallSaysWhatItCannotCount(t *testing.T) {
	file, _ := program(t)
	timedGo := here(t, "calledKnownTimes")
	timedGo.Timed = true
	wrong := []bpf.Function{
		{Library: "usercall", Name: "nosuch", File: file, Symbol: "nosuch"},
		{Library: "libnosuch.so", Name: "f", File: "libnosuch.so", Symbol: "f"},
		{Library: "gone", Name: "f", File: "/nowhere/gone", Symbol: "f"},
	}
	c := callsOf(t, append(wrong, timedGo)...)
	s := c.status()
	if s.State != bpf.Degraded {
		t.Errorf("sampler is %s, want degraded: one of its functions is counted", s.State)
	}
	for _, want := range []string{"usercall:nosuch: " + file + " has no function nosuch", "no library libnosuch.so in /", "gone:f: open /nowhere/gone: no such file",
		"test:calledKnownTimes: its calls are counted but not timed", "is a Go program"} {
		if !strings.Contains(s.Reason, want) {
			t.Errorf("%q is not in the reason: %s", want, s.Reason)
		}
	}
	before := c.read()
	calledKnownTimes(1)
	now := c.read()
	now.since(before).want(t, call("usercall", "test", "calledKnownTimes"), 1)
	if len(now) != 1 {
		t.Errorf("there are other series: %v", now)
	}

	c = callsOf(t, wrong...)
	if s := c.status(); s.State != bpf.Failed {
		t.Errorf("sampler is %s, want failed: none of its functions is there", s.State)
	}
	if c = callsOf(t); c.status().State != bpf.Disabled || !strings.Contains(c.status().Reason, "add [[functions]]") {
		t.Errorf("without functions the sampler is %+v", c.status())
	}
}

// TestUsercallOfALibrary calls the C library's own functions.
func TestUsercallOfALibrary(t *testing.T) {
	if os.Getenv("REZOLUS_VM") != "" {
		return // there is no C library
	}
	dir := t.TempDir()
	source, file := filepath.Join(dir, "main.c"), filepath.Join(dir, "main")
	text := "#include <unistd.h>\nint main(void) { for (int i = 0; i < 1013; i++) getppid(); return 0; }\n"
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "gcc", "-O1", "-o", file, source)
	c := callsOf(t,
		bpf.Function{Library: "libc.so.6", Name: "getppid", File: "libc.so.6", Symbol: "getppid", Timed: true},
		bpf.Function{Library: "c", Name: "getppid", File: "c", Symbol: "getppid"},
		bpf.Function{Library: "libc.so.6", Name: "memcpy", File: "libc.so.6", Symbol: "memcpy"},
		bpf.Function{Library: "main", Name: "getppid", File: file, Symbol: "getppid"})
	for _, want := range []string{"several functions for memcpy, of which each process chooses one", "main calls getppid and does not have it"} {
		if s := c.status(); !strings.Contains(s.Reason, want) {
			t.Errorf("%q is not in the reason: %s", want, s.Reason)
		}
	}
	undisturbed(t, func(b *books) {
		before := c.read()
		run(t, file)
		d := c.read().since(before)
		// Shells of other tests call it, too.
		for _, series := range []string{call("usercall", "libc.so.6", "getppid"), call("usercall", "c", "getppid"),
			call("usercall_latency", "libc.so.6", "getppid")} {
			if got := d.count(t, series); got < 1013 {
				t.Errorf("%s = %d, want at least 1013", series, got)
			}
			b.within(series, d.count(t, series), 1013, 1013+50)
		}
	})
}

// BenchmarkUsercall is what a call costs the program that is measured. Of the
// first instruction depends whether the kernel can emulate it (framed: a push)
// or lets the processor execute it in single step.
func BenchmarkUsercall(b *testing.B) {
	const calls = 100_000
	for function, arguments := range map[string][]string{"quick": {"x"}, "framed": {"x", "x"}} {
		for _, kind := range []string{"bare", "counted", "timed"} {
			b.Run(function+"/"+kind, func(b *testing.B) {
				file, functions := program(b, function)
				functions[0].Timed = kind == "timed"
				if kind != "bare" {
					callsOf(b, functions...).healthy()
				}
				for b.Loop() {
					run(b, file, arguments...)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/calls, "ns/call")
			})
		}
	}
}
