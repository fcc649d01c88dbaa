// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"strings"
	"sync"
	"testing"
	"time"

	"rezolus/internal/bpf"
	"rezolus/internal/host"
	"rezolus/test/workload"
)

// burnTogether has two cgroups compete for one CPU for a while. None begins
// before the other is there.
func burnTogether(t *testing.T, a, b *workload.Cgroup, d time.Duration) {
	cpu := host.Online()[0]
	done := make(chan struct{})
	var both sync.WaitGroup
	both.Add(2)
	burn := func(c *workload.Cgroup) {
		c.Thread(t, func() {
			workload.Pin(cpu)
			both.Done()
			both.Wait()
			workload.Burn(d)
		})
	}
	go func() {
		defer close(done)
		burn(b)
	}()
	burn(a)
	<-done
}

// TestWhoKeptWhomWaiting: two cgroups that burn on one CPU keep each other
// waiting for about as long as each burned.
func TestWhoKeptWhomWaiting(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := start(t, "task/task", h)
		a, b := m.cgroup("victim"), m.cgroup("culprit")
		a.Prefer(t)
		b.Prefer(t)
		pair := func(victim, culprit string) string {
			return "cgroup_scheduler_interference{culprit=" + culprit + ",victim=" + victim + "}"
		}
		// The heaviest get a rank, which takes some weight and a second.
		for deadline := time.Now().Add(20 * time.Second); ; {
			burnTogether(t, a, b, 100*time.Millisecond)
			if r := m.read(); r[pair(a.Path, b.Path)] != nil && r[pair(b.Path, a.Path)] != nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the cgroups got no rank")
			}
		}
		undisturbed(t, func(books *books) {
			before := m.read()
			burnTogether(t, a, b, 400*time.Millisecond)
			d := m.read().since(before)
			// Who else runs on that CPU keeps them waiting, too, and has a share
			// of it.
			for _, c := range [][2]string{{a.Path, b.Path}, {b.Path, a.Path}} {
				own := d.count(t, "cgroup_scheduler_runqueue_wait{name="+c[0]+"}")
				d.within(t, pair(c[0], c[1]), min(100*ms, own/50), 800*ms)
			}
			// Each waited for the other, not for itself.
			for _, c := range []*workload.Cgroup{a, b} {
				if got := d.count(t, pair(c.Path, c.Path)); got > 20*ms {
					t.Errorf("%s kept itself waiting for %d ms", c.Path, got/ms)
				}
			}
			// Nothing is lost: all pairs together are all that was waited.
			waits := d.total("scheduler_runqueue_wait")
			books.near("waits by pairs and in all, ns", d.total("cgroup_scheduler_interference"), waits,
				uint64(float64(waits)*emulated(0.001, 0.02))+100_000)
			var row uint64
			for k, v := range d {
				if strings.HasPrefix(k, "cgroup_scheduler_interference{") && strings.HasSuffix(k, "victim="+a.Path+"}") {
					row += v[0]
				}
			}
			own := d.count(t, "cgroup_scheduler_runqueue_wait{name="+a.Path+"}")
			books.near("waits of one by culprits and in all, ns", row, own, own/100)
		})
	})
}

// TestDepthAndWakeups: while one task burns on a CPU, two that are woken there
// find it; what slept is counted when it runs again.
func TestDepthAndWakeups(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := start(t, "task/task", h)
		a, b := m.cgroup("burner"), m.cgroup("sleeper")
		undisturbed(t, func(books *books) {
			cpu := host.Online()[0]
			done := make(chan struct{})
			before := m.read()
			go func() {
				defer close(done)
				a.Thread(t, func() {
					workload.Pin(cpu)
					workload.Burn(150 * time.Millisecond)
				})
			}()
			b.Thread(t, func() {
				workload.Pin(cpu)
				workload.Sleeps(31, time.Millisecond)
			})
			<-done
			d := m.read().since(before)
			wakeups := d.total("scheduler_wakeups")
			if wakeups < 31 {
				t.Errorf("%d wakeups, the sleeper alone had 31", wakeups)
			}
			books.near("wakeups and times off the CPU", wakeups, d.count(t, "scheduler_offcpu"), 5)
			if depths, switches := d.count(t, "scheduler_runqueue_depth"), d.total("scheduler_context_switch"); depths < switches {
				books.errorf("%d depths, %d switches away from a task", depths, switches)
			}
			var two uint64
			for _, n := range d["scheduler_runqueue_depth"][2:] {
				two += n
			}
			if two < 31 {
				books.errorf("%d switches found two tasks or more, want at least 31", two)
			}
		})
	})
}
