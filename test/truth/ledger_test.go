// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"rezolus/internal/analyze"
	"rezolus/internal/bpf"
	"rezolus/internal/hist"
	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source/things"
	"rezolus/probes"
	"rezolus/test/workload"
)

// all loads every built-in probe that this kernel can run.
func all(t *testing.T) []source {
	t.Helper()
	files, err := fs.Glob(probes.Objects, "*/*.bpf.o")
	if err != nil || len(files) < 7 {
		t.Fatalf("probes are %v, %v", files, err)
	}
	var objects []*bpf.Object
	for _, f := range files {
		objects = append(objects, parse(t, strings.TrimSuffix(f, ".bpf.o")))
	}
	tracker, err := host.TrackCgroups(host.CgroupOptions{Mount: host.CgroupMode().Mount})
	if err != nil {
		t.Fatal(err)
	}
	things, err := things.Track(things.Options{Host: machine(), MaxCgroups: 64, Cgroups: tracker}, objects...)
	if err != nil {
		t.Fatal(err)
	}
	closers := []io.Closer{tracker}
	var sources []source
	for _, o := range objects {
		p, err := o.Load(bpf.Options{Host: machine(), Slots: things.Slots})
		if err != nil {
			continue // a probe of functions that nobody named
		}
		closers = append(closers, p)
		if s := p.Source(); s != nil {
			sources = append(sources, s)
		}
	}
	for _, s := range things.Sources() {
		sources = append(sources, s)
	}
	closers = append(closers, things)
	t.Cleanup(func() {
		for _, c := range closers {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return sources
}

// snapshot reads every source once.
func snapshot(t *testing.T, run *metric.Run, sources []source) *metric.Snapshot {
	t.Helper()
	s := &metric.Snapshot{Run: run, Mono: host.Mono(), Frames: make([]metric.Frame, len(sources))}
	for i, source := range sources {
		if err := source.Read(&s.Frames[i]); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestTheLedgerHoldsInAMixedLoad runs every probe and every kind of work at
// once. What the ledger compares must agree to a thousandth; a few events may
// lie between the reads of two sources.
func TestTheLedgerHoldsInAMixedLoad(t *testing.T) {
	sources := all(t)
	disk := workload.NewDisk(t, 8<<20)
	disk.Write(1, 4096) // a disk has series from its first request on
	var work []func(*sync.WaitGroup)
	for i, f := range []func(){
		func() { workload.Writes(100_003) },
		func() { workload.Sleeps(307, time.Millisecond) },
		func() { workload.Forks(101) },
		func() { workload.Burn(300 * time.Millisecond) },
		func() { disk.Write(1009, 4096); disk.Read(1009, 4096) },
		func() { talk(1009) },
	} {
		c := workload.NewCgroup(t, fmt.Sprint("mixed", i))
		work = append(work, func(all *sync.WaitGroup) { all.Go(func() { c.Thread(t, f) }) })
	}
	undisturbed(t, func(b *books) {
		run, ledger := &metric.Run{}, analyze.NewLedger(host.Mono)
		ledger.Observe(snapshot(t, run, sources))
		var all sync.WaitGroup
		for _, do := range work {
			do(&all)
		}
		all.Wait()
		ledger.Observe(snapshot(t, run, sources))
		audit(t, b, ledger)
	})
}

// audit asserts that a ledger compared what the mixed load did at least, and
// that nothing is off.
func audit(t *testing.T, b *books, ledger *analyze.Ledger) {
	t.Helper()
	var f metric.Frame
	if err := ledger.Read(&f); err != nil {
		t.Fatal(err)
	}
	compared, residual := map[string]float64{}, map[string]float64{}
	for i := range f.Schema.Series {
		e := &f.Schema.Series[i]
		to := map[string]map[string]float64{"ledger_compared": compared, "ledger_residual": residual}[e.Desc.Name]
		to[e.Values[0]] = e.Desc.Value(f.Values[e.Off])
	}
	for check, least := range map[string]float64{
		"cgroup_syscalls_are_all_syscalls": 100_003, "cgroup_switches_are_all_switches": 307, "stints_are_switches": 307,
		"wakeups_are_sleeps": 307, "cgroup_forks_are_all_forks": 101, "blockio_issued_is_done": 2018, "blockio_timed_or_discarded": 2018,
		"cgroup_blockio_is_all_blockio": 2018 * 4096, "pairs_are_all_waits": 1, "cgroup_waits_are_all_waits": 1, "migrations_from_are_to": 0,
	} {
		// A series that ended meanwhile has nothing to compare.
		if n, there := compared[check]; !there || n < least {
			b.errorf("%s compared %v, want at least %v", check, n, least)
		}
	}
	for check, share := range residual {
		few := 5.0 // events between the reads of two sources
		if strings.Contains(check, "waits") {
			few = 5e6 // one of which may have waited so long
		}
		if share > emulated(0.001, 0.01) && share*compared[check] > few {
			b.errorf("%s: off by %v of %v", check, share*compared[check], compared[check])
		}
	}
}

// emulated is another tolerance where a virtual machine without hardware
// support takes milliseconds between the reads of two sources.
func emulated(real, inside float64) float64 {
	if os.Getenv("REZOLUS_VM") != "" {
		return inside
	}
	return real
}

// talk sends n messages over TCP on loopback and reads them.
func talk(n int) {
	listener := workload.Listen(netip.MustParseAddr("127.0.0.1"), 1)
	client, server := workload.Pair(listener)
	for range n {
		client.Send(1009)
		server.Receive(1009)
	}
	client.Close()
	server.Close()
	listener.Close()
}

// TestTheBooksBalance: what is counted in two ways must agree. The two sources
// are read one after the other, so that a few events may lie between.
func TestTheBooksBalance(t *testing.T) {
	m := start(t, "task/task", machine())
	c := m.cgroup("mixed")
	undisturbed(t, func(b *books) {
		before := m.read()
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.Thread(t, func() { workload.Burn(200 * time.Millisecond) })
		}()
		c.Thread(t, func() {
			workload.Writes(1009)
			workload.Sleeps(101, time.Millisecond)
			workload.Forks(23)
		})
		<-done
		balance(t, b, m.read().since(before))
	})
}

func balance(t *testing.T, b *books, d reading) {
	t.Helper()
	agree := func(what string, one, other uint64) {
		b.near(what, one, other, uint64(float64(max(one, other))*emulated(0.02, 0.1))+100)
	}
	switches := d.total("scheduler_context_switch")
	agree("switches by CPU and by cgroup", switches, d.total("cgroup_scheduler_context_switch"))
	agree("switches away and stints", switches, d.count(t, "scheduler_running"))
	agree("switches away and waits", switches, d.count(t, "scheduler_runqueue_latency"))
	agree("calls by class and by cgroup", d.total("syscall"), d.total("cgroup_syscall"))
	agree("wait by CPU and by cgroup, us", d.total("scheduler_runqueue_wait")/1000, d.total("cgroup_scheduler_runqueue_wait")/1000)
	var from, to uint64
	for _, cpu := range host.Online() {
		from += d.count(t, fmt.Sprintf("cpu_migrations{direction=from,id=%d}", cpu))
		to += d.count(t, fmt.Sprintf("cpu_migrations{direction=to,id=%d}", cpu))
	}
	agree("migrations from and to", from, to)
	for sum, histogram := range map[string]string{"scheduler_runqueue_wait": "scheduler_runqueue_latency", "cgroup_scheduler_running": "scheduler_running"} {
		lo, hi := hist.Default.SumBounds(d[histogram])
		if all := float64(d.total(sum)); all < lo*0.99-1e6 || all > hi*1.01+1e6 {
			b.errorf("%s is %.0f ns, %s allows %.0f to %.0f", sum, all, histogram, lo, hi)
		}
	}
	if lost := d.total("scheduler_discarded_samples"); lost > switches/100 {
		b.errorf("%d of %d switches had clocks that disagree", lost, switches)
	}
}
