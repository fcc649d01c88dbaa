// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rezolus/internal/bpf"
	"rezolus/internal/hist"
	"rezolus/internal/host"
	"rezolus/test/workload"
)

// table is a file of /proc with a row for each kind of interrupt and a column
// for each online CPU: the numbers by row name and CPU, and what is said after
// them.
type table map[string]struct {
	counts []uint64
	text   string
}

func procTable(t *testing.T, file string) table {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rows := table{}
	for line := range strings.Lines(string(text)) {
		name, rest, found := strings.Cut(line, ":")
		if !found {
			continue
		}
		row := rows[strings.TrimSpace(name)]
		for f := range strings.FieldsSeq(rest) {
			n, err := strconv.ParseUint(f, 10, 64)
			if err != nil || len(row.counts) == len(host.Online()) {
				break
			}
			row.counts = append(row.counts, n)
		}
		row.text = strings.TrimSpace(rest)
		rows[strings.TrimSpace(name)] = row
	}
	return rows
}

// between does work between two readings of the meter, each taken between two
// of a file of /proc: at least, got and at most are what came meanwhile. The
// kernel counts an interrupt there and runs the programs one after the other,
// so that each bound may be off by the one under way. Where the kernel runs no
// program for some tasks, about one interrupt in a thousand is missing
// (docs/probes.md): the books of a long time are not exact there.
type between struct {
	outer, inner [2]table
	got          reading
}

func sandwich(t *testing.T, m *meter, file string, work func()) between {
	t.Helper()
	var b between
	work() // a CPU may miss the first interrupts after a program was attached: three or four, in 3 of 600 runs
	b.outer[0] = procTable(t, file)
	before := m.read()
	b.inner[0] = procTable(t, file)
	work()
	b.inner[1] = procTable(t, file)
	after := m.read()
	b.outer[1] = procTable(t, file)
	b.got = after.since(before)
	return b
}

// agree asserts a series of one CPU against rows of the file; handlers is how
// many times a row counts.
func (b between) agree(t *testing.T, books *books, series string, cpu int, handlers func(name, text string) uint64) {
	t.Helper()
	sum := func(in [2]table) (n uint64) {
		for name, row := range in[1] {
			times := handlers(name, row.text)
			if times > 0 && cpu < len(row.counts) {
				n += times * row.counts[cpu]
				if before := in[0][name]; cpu < len(before.counts) {
					n -= times * before.counts[cpu]
				}
			}
		}
		return n
	}
	least, most := sum(b.inner), sum(b.outer)
	if got := b.got.count(t, series); got+1 < least || got > most+1 {
		books.errorf("%s = %d, the kernel counted %d to %d", series, got, least, most)
	}
}

var softirqRows = map[string]string{"hi": "HI", "timer": "TIMER", "net_tx": "NET_TX", "net_rx": "NET_RX", "block": "BLOCK",
	"irq_poll": "IRQ_POLL", "tasklet": "TASKLET", "sched": "SCHED", "hrtimer": "HRTIMER", "rcu": "RCU"}

func TestSoftirqsAreThoseOfTheKernel(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "irq/irq", h, "cpu_softirq", "cpu_softirq_latency")
		undisturbed(t, func(books *books) { softirqs(t, m, books) })
	})
}

func softirqs(t *testing.T, m *meter, books *books) {
	began := time.Now()
	b := sandwich(t, m, "/proc/softirqs", func() {
		for range 3 {
			workload.Datagrams(101)
			time.Sleep(5 * time.Millisecond)
		}
	})
	took := uint64(time.Since(began))
	for kind, row := range softirqRows {
		for i, cpu := range host.Online() {
			of := fmt.Sprintf("{id=%d,kind=%s}", cpu, kind)
			b.agree(t, books, "softirq"+of, i, func(name, _ string) uint64 {
				if name == row {
					return 1
				}
				return 0
			})
			n, time := b.got.count(t, "softirq"+of), b.got.count(t, "softirq_time"+of)
			if time > took || n > 2 && time < n*10 {
				t.Errorf("%d software interrupts %s took %d ns of %d", n, of, time, took)
			}
		}
	}
	var received uint64
	for _, cpu := range host.Online() {
		received += b.got.count(t, fmt.Sprintf("softirq{id=%d,kind=net_rx}", cpu))
	}
	// A datagram may find the interrupt of another still to be run.
	if received < 303/2 {
		books.errorf("303 datagrams were received in %d software interrupts", received)
	}
	books.near("software interrupts net_rx and waits for them", received, b.got.count(t, "softirq_latency{kind=net_rx}"), 2)
}

// requests has the disk under the file system make interrupts.
func requests(t *testing.T) {
	t.Helper()
	disk, err := os.CreateTemp("/var/tmp", "interrupts")
	if err != nil { // a virtual machine has no disk; its console interrupts
		for range 20 {
			fmt.Println("interrupts")
		}
		time.Sleep(50 * time.Millisecond)
		return
	}
	defer os.Remove(disk.Name())
	defer disk.Close()
	for range 11 {
		if _, err := disk.Write(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
		if err := disk.Sync(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHardirqsAreThoseOfTheKernel(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "irq/irq", h, "cpu_hardirq")
		undisturbed(t, func(books *books) { hardirqs(t, m, books) })
	})
}

func hardirqs(t *testing.T, m *meter, books *books) {
	began := time.Now()
	b := sandwich(t, m, "/proc/interrupts", func() { requests(t) })
	took := uint64(time.Since(began))
	var all uint64
	for i, cpu := range host.Online() {
		series := fmt.Sprintf("hardirq{id=%d}", cpu)
		b.agree(t, books, series, i, func(name, text string) uint64 {
			if _, err := strconv.Atoi(name); err != nil && !strings.HasPrefix(name, "IPI") {
				return 0
			}
			return uint64(1 + strings.Count(text, ", ")) // each handler of the line
		})
		all += b.got.count(t, series)
		if time := b.got.count(t, fmt.Sprintf("hardirq_time{id=%d}", cpu)); time > took {
			t.Errorf("handlers took %d ns of %d", time, took)
		}
	}
	if all == 0 {
		t.Error("no hardware interrupt came; the workload is wrong")
	}
	books.near("handlers that ran and were timed", all, b.got.count(t, "hardirq_latency"), 2)
	lo, hi := hist.Default.SumBounds(b.got["hardirq_latency"])
	if time := float64(b.got.total("hardirq_time")); time < lo*0.9 || time > hi*1.1 {
		books.errorf("handlers took %.0f ns, their histogram allows %.0f to %.0f", time, lo, hi)
	}
}

// onX86 is for what only that architecture has; elsewhere the sampler must say
// that it cannot be had.
func onX86(t *testing.T, object, sampler string, f func(t *testing.T, m *meter)) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		if runtime.GOARCH != "amd64" {
			unsupported(t, object, h, sampler)
			return
		}
		f(t, startSome(t, object, h, sampler))
	})
}

func TestVectorsAreThoseOfTheKernel(t *testing.T) {
	onX86(t, "irq/irq", "cpu_vectors", func(t *testing.T, m *meter) {
		undisturbed(t, func(books *books) { vectors(t, m, books) })
	})
}

func vectors(t *testing.T, m *meter, books *books) {
	b := sandwich(t, m, "/proc/interrupts", func() {
		workload.Burn(50 * time.Millisecond)
		time.Sleep(20 * time.Millisecond)
	})
	for i, cpu := range host.Online() {
		for kind, row := range map[string]string{"local_timer": "LOC", "reschedule": "RES", "irq_work": "IWI"} {
			b.agree(t, books, fmt.Sprintf("hardirq_vector{id=%d,kind=%s}", cpu, kind), i, func(name, _ string) uint64 {
				if name == row {
					return 1
				}
				return 0
			})
		}
		// The kernel has one row for two vectors.
		one := fmt.Sprintf("hardirq_vector{id=%d,kind=call_function_single}", cpu)
		b.got[one][0] += b.got.count(t, fmt.Sprintf("hardirq_vector{id=%d,kind=call_function}", cpu))
		b.agree(t, books, one, i, func(name, _ string) uint64 {
			if name == "CAL" {
				return 1
			}
			return 0
		})
	}
	if b.got.total("hardirq_vector_time") == 0 {
		t.Error("the timer interrupts took no time")
	}
}

func TestUnmappingFlushesTheTLB(t *testing.T) {
	onX86(t, "irq/irq", "cpu_tlb_flush", func(t *testing.T, m *meter) {
		c := m.cgroup("unmaps")
		online := host.Online()
		var stop atomic.Bool
		spun := make(chan struct{})
		go func() { // keeps this process on another CPU, whose TLB must be flushed too
			runtime.LockOSThread()
			workload.Pin(online[len(online)-1])
			for !stop.Load() {
				workload.Burn(time.Millisecond)
			}
			close(spun)
		}()
		defer func() { stop.Store(true); <-spun }()
		undisturbed(t, func(books *books) {
			before := m.read()
			c.Thread(t, func() {
				workload.Pin(online[0])
				for range 101 {
					workload.Unmaps(1)
					workload.Sleeps(1, time.Millisecond) // the other gets its share meanwhile
				}
			})
			d := m.read().since(before)
			of := func(reason string) uint64 {
				return d.count(t, "cgroup_cpu_tlb_flush{name="+c.Path+",reason="+reason+"}")
			}
			if local := of("local_shootdown") + of("local_mm_shootdown"); local < 101 {
				t.Errorf("101 unmappings flushed their own CPU's TLB %d times", local)
			}
			// Another task may have had the other CPU now and then.
			if sent := of("remote_send_ipi"); len(online) > 1 && sent < 11 {
				books.errorf("101 unmappings had other CPUs flush %d times", sent)
			}
			cpus := d.total("cpu_tlb_flush")
			books.near("flushes on the CPUs and in the cgroups", cpus, d.total("cgroup_cpu_tlb_flush"), cpus/50+100)
		})
	})
}

// idleTime is how long the CPUs were idle, by /proc/stat, in nanoseconds.
func idleTime(t *testing.T) (ns float64) {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(text))
	for _, ticks := range []string{f[4], f[5]} { // idle, iowait
		n, err := strconv.ParseFloat(ticks, 64)
		if err != nil {
			t.Fatal(err)
		}
		ns += n * 1e7 // USER_HZ is 100
	}
	return ns
}

// wakeAll has each CPU end the idle period it may be in.
func wakeAll() {
	done := make(chan struct{})
	go func() { // on a thread that ends, being pinned
		defer close(done)
		runtime.LockOSThread()
		for _, cpu := range host.Online() {
			workload.Pin(cpu)
		}
	}()
	<-done
}

func TestIdlePeriodsAddUpToIdleTime(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "irq/irq", h, "cpu_idle_periods")
		undisturbed(t, func(books *books) {
			wakeAll()
			idle, before := idleTime(t), m.read()
			time.Sleep(time.Second)
			wakeAll()
			idle, d := idleTime(t)-idle, m.read().since(before)
			lo, hi := hist.Default.SumBounds(d["cpu_idle_period"])
			// A period between two ticks of the clock may be idle to the one and
			// not to the other.
			slack := idle/10 + 1e8*float64(len(host.Online()))
			if lo > idle+slack || hi < idle-slack {
				books.errorf("the CPUs were idle for %.0f ms, their periods add up to %.0f to %.0f", idle/1e6, lo/1e6, hi/1e6)
			}
		})
	})
}
