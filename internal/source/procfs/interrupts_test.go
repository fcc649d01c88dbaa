// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/source"
)

const someInterrupts = `           CPU0       CPU1       
  7:          1          2  IO-APIC   5-edge    
 26:          0         14  IO-APIC   4-edge      ttyS0
 36:         11     890816 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
 40:          3          0     GICv3  27 Level     eth0, usb 1
NMI:          0          0   Non-maskable interrupts
LOC:        100       3000   Local timer interrupts
ERR:          5
`

func writtenInterrupts(t testing.TB, limit int, text string) (*reader, func(string)) {
	path := filepath.Join(t.TempDir(), "interrupts")
	rewrite(t, path, text)
	r := open(t, func() (source.Source, error) { return NewInterrupts(path, limit) })
	return r, func(text string) { rewrite(t, path, text) }
}

func TestInterruptsAsWritten(t *testing.T) {
	r, _ := writtenInterrupts(t, 0, someInterrupts)
	r.wants(map[string]uint64{"interrupts  7": 3, "interrupts ttyS0 26": 14, "interrupts virtio1-req.0 36": 890827,
		"interrupts eth0, usb 1 40": 3, "interrupts Non-maskable interrupts NMI": 0, "interrupts Local timer interrupts LOC": 3100,
		"interrupts  ERR": 5})
	if start := r.start("interrupts ttyS0 26"); start != host.BootTime() {
		t.Errorf("counters began at %d, want when the machine did", start)
	}
	allocatesNothing(t, r)
}

// TestLinesThatAreTooMany holds that the sum of all stays what it is.
func TestLinesThatAreTooMany(t *testing.T) {
	r, write := writtenInterrupts(t, 4, someInterrupts)
	want := map[string]uint64{"interrupts virtio1-req.0 36": 890827, "interrupts Non-maskable interrupts NMI": 0,
		"interrupts Local timer interrupts LOC": 3100, "interrupts  ERR": 5, "interrupts other other": 20}
	r.wants(want)
	// A line that is not shown goes, one comes, and one is busier than any.
	text := strings.Replace(someInterrupts, "  7:          1          2  IO-APIC   5-edge    \n", "", 1)
	text = strings.Replace(text, "26:          0", "26:    9000000", 1)
	text = strings.Replace(text, "NMI:", " 41:          6          0     GICv3  28 Level     new\nNMI:", 1)
	write(text)
	want["interrupts other other"] += 9000000 + 6
	r.wants(want)
	// One that is shown goes: its place is for one that comes.
	text = strings.Replace(text, "NMI:          0          0   Non-maskable interrupts\n", "", 1)
	text = strings.Replace(text, "LOC:", " 42:          7          0     GICv3  28 Level     newer\nLOC:", 1)
	write(text)
	delete(want, "interrupts Non-maskable interrupts NMI")
	want["interrupts newer 42"] = 7
	r.wants(want)
	if start := r.start("interrupts newer 42"); start <= host.BootTime() || start > host.Wall() {
		t.Errorf("a line that came later began at %d", start)
	}
	allocatesNothing(t, r)
}

func line(cpus string, counts ...int) string {
	text := cpus + "\n 36:"
	for _, n := range counts {
		text += fmt.Sprintf(" %10d", n)
	}
	return text + " PCI-MSIX   1-edge      disk\n"
}

func TestCountsNeverStepBack(t *testing.T) {
	r, write := writtenInterrupts(t, 0, line("CPU0 CPU1", 100, 4294967290))
	f := func(want uint64, text string) {
		t.Helper()
		write(text)
		if got := r.says()["interrupts disk 36"]; got != want {
			t.Errorf("%d interrupts, want %d", got, want)
		}
	}
	f(4294967390, line("CPU0 CPU1", 100, 4294967290))
	f(4294967400, line("CPU0 CPU1", 100, 4)) // 32 bits are full
	f(4294967400, line("CPU0 CPU1", 99, 4))  // as CAL does
	f(4294967401, line("CPU0 CPU1", 101, 4))
	f(4294967406, line("CPU1", 9)) // CPU 0 goes offline
	f(4294967409, line("CPU1", 12))
	f(4294967412, line("CPU0 CPU1", 103, 13)) // and comes back
	f(4294967422, line("CPU0 CPU1", 50, 23))  // within what a count may step back by
	f(4294967442, line("CPU0 CPU1", 113, 33)) // and goes on
	first := r.start("interrupts disk 36")
	// Another driver takes the line, and the kernel goes on counting.
	write(strings.Replace(line("CPU0 CPU1", 115, 34), "disk", "net", 1))
	if got := r.says(); got["interrupts net 36"] != 3 || len(got) != 1 || r.start("interrupts net 36") <= first {
		t.Errorf("another driver has the line, and there is %v", got)
	}
	f = func(want uint64, text string) {
		t.Helper()
		write(strings.Replace(text, "disk", "net", 1))
		if got := r.says()["interrupts net 36"]; got != want {
			t.Errorf("%d interrupts, want %d", got, want)
		}
	}
	f(3+999_970, line("CPU0 CPU1", 1_000_084, 35))
	f(3+999_970+17, line("CPU0 CPU1", 17, 35)) // the line was given up and made again
}

func TestInterruptsOfOtherForms(t *testing.T) {
	for _, text := range []string{"", "\n", "CPU0 CPU\n", "CPU1 CPU0\n", "CPU0\nNMI 1\n", "CPU0\n: 1\n", "CPU0\n 1: 1 a  b\n 1: 1 a  c\n"} {
		r, _ := writtenInterrupts(t, 0, text)
		if err := r.Read(&r.frame); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// statInterrupts are the interrupts by number as /proc/stat has them, which
// the kernel adds up by another way.
func statInterrupts(t testing.TB) []uint64 {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); words[0] == "intr" {
			var counts []uint64
			for _, word := range words[2:] {
				n, err := strconv.ParseUint(word, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				counts = append(counts, n)
			}
			return counts
		}
	}
	t.Fatal("/proc/stat has no interrupts")
	return nil
}

func TestInterruptsAreThoseOfStat(t *testing.T) {
	r := sampled(t, interrupts)
	before := statInterrupts(t)
	got := r.says()
	after := statInterrupts(t)
	compared := 0
	for _, s := range r.frame.Schema.Series {
		irq, err := strconv.Atoi(s.Values[1])
		if err != nil {
			continue
		}
		n := got["interrupts "+s.Values[0]+" "+s.Values[1]]
		if n < before[irq] || n > after[irq] {
			t.Errorf("%q interrupted %d times, /proc/stat says %d to %d", s.Values, n, before[irq], after[irq])
		}
		compared++
	}
	if compared == 0 {
		t.Error("there is no line with a number")
	}
	allocatesNothing(t, r)
}

// TestTimersInterrupt sleeps a known number of times, each of which ends by an
// interrupt of a CPU's own timer.
func TestTimersInterrupt(t *testing.T) {
	r := sampled(t, interrupts)
	timers := func() (n uint64) {
		for key, v := range r.says() {
			if strings.HasPrefix(key, "interrupts Local timer interrupts ") || strings.HasPrefix(key, "interrupts arch_timer ") {
				n += v
			}
		}
		return n
	}
	const naps = 503
	least := uint64(math.MaxUint64)
	if !undisturbed(func() bool {
		before := timers()
		for range naps {
			if err := unix.Nanosleep(&unix.Timespec{Nsec: 50_000}, nil); err != nil && err != unix.EINTR {
				t.Fatal(err)
			}
		}
		grown := timers() - before
		if grown < naps*9/10 {
			t.Errorf("%d interrupts of timers, and %d times one ended a sleep", grown, naps)
		}
		least = min(least, grown)
		return least <= 3*naps
	}) {
		t.Errorf("%d interrupts of timers, want %d", least, naps)
	}
}

func FuzzInterrupts(f *testing.F) {
	f.Add([]byte(someInterrupts), []byte(line("CPU0 CPU1", 3, 4)))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		s := &Interrupts{limit: 3}
		var before uint64
		for _, text := range [][]byte{first, second, second} {
			if !s.parse(text) && s.learn(text) != nil {
				continue
			}
			if len(s.shown) > 3 || s.schema.Words < len(s.shown) {
				t.Errorf("%d lines are shown, in %d words", len(s.shown), s.schema.Words)
			}
			if s.other < before {
				t.Errorf("the others fell from %d to %d", before, s.other)
			}
			before = s.other
		}
	})
}
