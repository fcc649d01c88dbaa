// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"fmt"
	"testing"
	"time"

	"rezolus/internal/hist"
	"rezolus/internal/host"
	"rezolus/test/workload"
)

// TestTheBooksBalance: what is counted in two ways must agree. The two sources
// are read one after the other, so that a few events may lie between.
func TestTheBooksBalance(t *testing.T) {
	m := start(t, "task/task", machine())
	c := m.cgroup("mixed")
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
	d := m.read().since(before)
	agree := func(what string, a, b uint64) {
		t.Helper()
		if slack := max(a, b)/50 + 100; max(a, b)-min(a, b) > slack {
			t.Errorf("%s: %d and %d", what, a, b)
		}
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
	lo, hi := hist.Default.SumBounds(d["scheduler_runqueue_latency"])
	if wait := float64(d.total("scheduler_runqueue_wait")); wait < lo*0.99-1e6 || wait > hi*1.01+1e6 {
		t.Errorf("waits add up to %.0f ns, their histogram allows %.0f to %.0f", wait, lo, hi)
	}
	lo, hi = hist.Default.SumBounds(d["scheduler_running"])
	if running := float64(d.total("cgroup_scheduler_running")); running < lo*0.99-1e6 || running > hi*1.01+1e6 {
		t.Errorf("stints add up to %.0f ns, their histogram allows %.0f to %.0f", running, lo, hi)
	}
	if lost := d.total("scheduler_discarded_samples"); lost > switches/100 {
		t.Errorf("%d of %d switches had clocks that disagree", lost, switches)
	}
}
