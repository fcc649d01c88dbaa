// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/bpf"
	"rezolus/internal/host"
	"rezolus/test/workload"
)

const ms = uint64(time.Millisecond)

// rungs are the ways the task probe can run on this kernel: as it does, and as
// it would without the kernel's own BTF.
func rungs(t *testing.T, f func(t *testing.T, h bpf.Host)) {
	t.Run("btf", func(t *testing.T) { f(t, machine()) })
	t.Run("raw", func(t *testing.T) {
		h := machine()
		h.KernelBTF = false
		f(t, h)
	})
}

func TestWritesAreCounted(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := start(t, "task/task", h)
		c := m.cgroup("writes")
		before := m.read()
		c.Thread(t, func() { workload.Writes(101) })
		d := m.read().since(before)
		d.want(t, "cgroup_syscall{name="+c.Path+",op=write}", 101)
		if got := d.count(t, "syscall{op=write}"); got < 101 {
			t.Errorf("the machine made %d writes, the workload alone 101", got)
		}
		if got := d.count(t, "syscall_latency{op=write}"); got < 101 {
			t.Errorf("%d writes were timed, want at least 101", got)
		}
	})
}

func TestForksAreCountedAndTheDeadAreNotLost(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := start(t, "task/task", h)
		c := m.cgroup("forks")
		before := m.read()
		c.Thread(t, func() { workload.Forks(23) })
		d := m.read().since(before)
		// clone, exit_group and wait4 for each; the thread itself exits too.
		d.within(t, "cgroup_syscall{name="+c.Path+",op=process}", 3*23, 3*23+4)
		// Each child's last switch. The kernel may make a fork, a wait and an
		// exit sleep for locks of its own, how often is its affair.
		d.within(t, "cgroup_scheduler_context_switch{kind=voluntary,name="+c.Path+"}", 23, 8*23)
	})
}

func TestSleepsAreOffCPU(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := start(t, "task/task", h)
		c := m.cgroup("sleeps")
		undisturbed(t, func(b *books) {
			var before, after reading
			began := time.Now()
			c.Thread(t, func() {
				before = m.read()
				workload.Sleeps(20, 50*time.Millisecond)
				after = m.read()
			})
			took := uint64(time.Since(began))
			d := after.since(before)
			series := "cgroup_scheduler_offcpu{name=" + c.Path + "}"
			b.within(series, d.count(t, series), 20*50*ms, took)
			d.want(t, "cgroup_syscall{name="+c.Path+",op=sleep}", 20)
			b.within("times off the CPU", above(d["scheduler_offcpu"], 50*ms), 20, math.MaxUint64)
			b.within("sleeps of 50 ms", above(d["syscall_latency{op=sleep}"], 50*ms), 20, math.MaxUint64)
		})
	})
}

// A kernel may run no program at the switch that brings a task back
// (docs/probes.md). The call that it slept in is timed all the same.
func TestEveryCallThatSleepsIsTimed(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := start(t, "task/task", h)
		c := m.cgroup("awaits")
		undisturbed(t, func(b *books) {
			var before, after reading
			c.Thread(t, func() {
				before = m.read()
				workload.Awaits(1500, time.Millisecond)
				after = m.read()
			})
			d := after.since(before)
			const calls = 1500 + 2 // to make the semaphore and to remove it
			d.want(t, "cgroup_syscall{name="+c.Path+",op=ipc}", calls)
			if all := d.count(t, "syscall{op=ipc}"); all != calls {
				b.errorf("others made %d of the system calls ipc", all-calls)
				return
			}
			d.want(t, "syscall_latency{op=ipc}", calls)
			if n := d.total("scheduler_unseen_switches"); n > 0 && os.Getenv("REZOLUS_VM") != "" {
				t.Errorf("%d switches were not seen, on a kernel that hides none", n)
			}
		})
	})
}

func TestTwoOnOneCPUWaitForEachOther(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := start(t, "task/task", h)
		a, b := m.cgroup("hog-a"), m.cgroup("hog-b")
		const each = 300 * time.Millisecond
		undisturbed(t, func(books *books) {
			before := m.read()
			burnTogether(t, a, b, each)
			d := m.read().since(before)
			for _, c := range []*workload.Cgroup{a, b} {
				running := d.count(t, "cgroup_scheduler_running{name="+c.Path+"}")
				wait := d.count(t, "cgroup_scheduler_runqueue_wait{name="+c.Path+"}")
				// What the thread did besides burning is little; what it waited
				// is at least most of the time the other had the CPU.
				if running < uint64(each) {
					t.Errorf("%s ran %d ms, used %v of CPU", c.Path, running/ms, each)
				}
				if running > 2*uint64(each) { // interrupts of the others are in it
					books.errorf("%s ran %d ms, used %v of CPU", c.Path, running/ms, each)
				}
				if wait < uint64(each)/2 {
					books.errorf("%s waited %d ms for a CPU that another had for %v", c.Path, wait/ms, each)
				}
				series := "cgroup_scheduler_context_switch{kind=involuntary,name=" + c.Path + "}"
				books.within(series, d.count(t, series), 3, 1<<20)
			}
		})
	})
}

func TestHopsAreMigrations(t *testing.T) {
	online := host.Online()
	if len(online) < 2 {
		t.Skip("a migration takes two CPUs")
	}
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := start(t, "task/task", h)
		c := m.cgroup("hops")
		undisturbed(t, func(b *books) {
			var before, after reading
			c.Thread(t, func() {
				workload.Pin(online[0])
				before = m.read()
				workload.Hop(22, online[0], online[1])
				after = m.read()
			})
			d, sums := after.since(before), map[string]uint64{}
			series := "cgroup_cpu_migrations{name=" + c.Path + "}"
			d.within(t, series, 20, 22) // see between: where other programs run, ours was not run for some events
			b.want(d, series, 22)
			for i, cpu := range online {
				for _, direction := range []string{"from", "to"} {
					n := d.count(t, fmt.Sprintf("cpu_migrations{direction=%s,id=%d}", direction, cpu))
					if i < 2 && n < 11 {
						t.Errorf("%d migrations %s CPU %d, the workload alone made 11", n, direction, cpu)
					}
					sums[direction] += n
				}
			}
			b.same("tasks that left a CPU and came to one", sums["from"], sums["to"])
		})
	})
}

func TestSwitchesAreTheKernels(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := start(t, "task/task", h)
		c := m.cgroup("switches")
		// The kernel's own count lies between ours taken inside and ours
		// taken outside of it.
		var r [4]reading
		var kernel [2][2]uint64
		c.Thread(t, func() {
			r[0] = m.read()
			kernel[0] = workload.Switches()
			r[1] = m.read()
			workload.Sleeps(13, time.Millisecond)
			workload.Pin(host.Online()[0])
			workload.Burn(50 * time.Millisecond)
			r[2] = m.read()
			kernel[1] = workload.Switches()
			r[3] = m.read()
		})
		inner, outer := r[2].since(r[1]), r[3].since(r[0])
		for i, kind := range []string{"voluntary", "involuntary"} {
			series := "cgroup_scheduler_context_switch{kind=" + kind + ",name=" + c.Path + "}"
			got := kernel[1][i] - kernel[0][i]
			if lo, hi := inner.count(t, series), outer.count(t, series); got < lo || got > hi {
				t.Errorf("the kernel counted %d %s switches, the probe %d to %d", got, kind, lo, hi)
			}
		}
		inner.within(t, "cgroup_scheduler_context_switch{kind=voluntary,name="+c.Path+"}", 13, 1<<20)
	})
}

func TestRunningIsTheCPUTimeUsed(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := start(t, "task/task", h)
		c := m.cgroup("burn")
		before := m.read()
		var used int64
		c.Thread(t, func() { used = workload.Burn(200 * time.Millisecond) })
		d := m.read().since(before)
		// A stint is wall time: interrupts are in it, and in a virtual
		// machine what the hypervisor took.
		least := uint64(float64(used) * emulated(1, 0.9)) // whose two clocks are not one
		d.within(t, "cgroup_scheduler_running{name="+c.Path+"}", least, uint64(used)*3/2+20*ms)
	})
}

// TestRealTimeTasks: the scheduler keeps the times of real-time and deadline
// tasks in the same fields.
func TestRealTimeTasks(t *testing.T) {
	for name, policy := range map[string]unix.SchedAttr{
		"fifo":     {Policy: unix.SCHED_FIFO, Priority: 1},
		"deadline": {Policy: unix.SCHED_DEADLINE, Runtime: 20 * ms, Deadline: 40 * ms, Period: 40 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			m := start(t, "task/task", machine())
			c := m.cgroup(name)
			c.AllowRealTime(t)
			var before, after reading
			var used int64
			var err error
			c.Thread(t, func() {
				policy.Size = unix.SizeofSchedAttr
				if err = unix.SchedSetAttr(0, &policy, 0); err != nil {
					return
				}
				before = m.read()
				workload.Sleeps(7, 10*time.Millisecond)
				used = workload.Burn(30 * time.Millisecond)
				workload.Sleeps(1, 10*time.Millisecond)
				after = m.read()
			})
			if err != nil {
				t.Fatalf("become %s: %v", name, err)
			}
			d := after.since(before)
			d.within(t, "cgroup_scheduler_offcpu{name="+c.Path+"}", 80*ms, 300*ms)
			d.within(t, "cgroup_scheduler_running{name="+c.Path+"}", uint64(used), uint64(used)+60*ms)
			d.within(t, "cgroup_scheduler_context_switch{kind=voluntary,name="+c.Path+"}", 8, 40)
			// Of a deadline task that used its runtime, the wait for the next
			// period is a wait for a CPU or a sleep, as the kernel sees it.
			d.within(t, "cgroup_scheduler_runqueue_wait{name="+c.Path+"}", 0, 200*ms)
		})
	}
}

func TestPidsThatComeAgainAreOtherTasks(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := start(t, "task/task", h)
		c := m.cgroup("reborn")
		before, began := m.read(), time.Now()
		c.Thread(t, func() {
			workload.Pin(host.Online()[0])
			workload.Reborn()
		})
		took := uint64(time.Since(began))
		d := m.read().since(before)
		of := "{name=" + c.Path + "}"
		// Two tasks at a time.
		d.within(t, "cgroup_scheduler_runqueue_wait"+of, 0, 2*took)
		d.within(t, "cgroup_scheduler_offcpu"+of, ms, 2*took)
		if n := above(d["scheduler_runqueue_latency"], uint64(time.Hour)); n > 0 {
			t.Errorf("%d tasks waited for a CPU for hours", n)
		}
	})
}
