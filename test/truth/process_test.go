// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"rezolus/internal/bpf"
	"rezolus/test/workload"
)

func TestProcessesThatComeAndGo(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := start(t, "process/process", h)
		c := m.cgroup("process")
		before := m.read()
		c.Thread(t, func() { workload.Forks(23) })
		d := m.read().since(before)
		d.want(t, "cgroup_process_forks{kind=process,name="+c.Path+"}", 23)
		d.want(t, "cgroup_process_exits{kind=process,name="+c.Path+"}", 23)
		// The thread of the workload ends in its cgroup, and was made elsewhere.
		d.want(t, "cgroup_process_exits{kind=thread,name="+c.Path+"}", 1)
		d.want(t, "cgroup_process_forks{kind=thread,name="+c.Path+"}", 0)
		if got := d.count(t, "process_exits{cause=success,kind=process}"); got < 23 {
			t.Errorf("%d processes ended well, want at least 23", got)
		}
	})
}

func TestProgramsThatRunAndDie(t *testing.T) {
	m := start(t, "process/process", machine())
	undisturbed(t, func(b *books) {
		before := m.read()
		for range 7 {
			if err := exec.Command("/proc/self/exe", "-test.run=^$").Run(); err != nil {
				t.Fatal(err)
			}
		}
		for range 5 {
			killed(t)
		}
		// The parent may hear of the end before the tracepoint's program ran.
		series := "process_exits{cause=signal,kind=process}"
		d := completed(t, m, before, series, 5)
		if execs := d.count(t, "process_execs"); execs < 12 {
			t.Errorf("%d programs were run, want at least 12", execs)
		}
		if got := d.count(t, series); got < 5 {
			t.Errorf("%d processes were killed, want at least 5", got)
		}
		// The machine has other processes; ours are the least there can be.
		b.within("process_execs", d.count(t, "process_execs"), 12, 12+200)
		forks := d.total("process_forks")
		if forks < 12 {
			t.Errorf("%d forks, want at least 12", forks)
		}
		b.near("forks and those of the cgroups", forks, d.total("cgroup_process_forks"), 5)
	})
}

// killed runs a program and kills it.
func killed(t *testing.T) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=TestWaitsForASignal")
	cmd.Env = append(os.Environ(), "REZOLUS_WAIT=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = out.Read(make([]byte, 1)) // it runs
	if err := cmd.Process.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// TestWaitsForASignal is what the test above kills.
func TestWaitsForASignal(t *testing.T) {
	if os.Getenv("REZOLUS_WAIT") == "" {
		return
	}
	os.Stdout.WriteString("here\n")
	select {}
}
