// SPDX-License-Identifier: Apache-2.0

package cgroupfs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
	"rezolus/test/workload"
)

// TestMain lets the test binary be the process that tests put into a cgroup:
// it waits for a word on standard input and does what it says.
func TestMain(m *testing.M) {
	if os.Getenv("REZOLUS_CHILD") == "" {
		os.Exit(m.Run())
	}
	word, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	work, path, _ := strings.Cut(strings.TrimSpace(word), " ")
	switch work {
	case "read":
		if err := readDirect(path, 37, 8192); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "burn":
		workload.Burn(200 * time.Millisecond)
	case "eat":
		for {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			eaten = append(eaten, b)
		}
	}
	os.Exit(0)
}

var eaten [][]byte

// readDirect reads n blocks of size bytes past the page cache.
func readDirect(path string, n, size int) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	for i := 0; i < n && err == nil; i++ {
		_, err = unix.Pread(fd, b, int64(i*size))
	}
	return err
}

// controller is where a controller of this machine counts, in a unified
// hierarchy after it was switched on for the children of the root.
func controller(t *testing.T, name, v1Name string) (mount string, v1 bool) {
	t.Helper()
	h := host.CgroupMode()
	if !h.V1() {
		if err := os.WriteFile(h.Mount+"/cgroup.subtree_control", []byte("+"+name), 0); err != nil {
			t.Fatalf("switch the %s controller on: %v", name, err)
		}
		return h.Mount, false
	}
	text, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); f[2] == "cgroup" && strings.Contains(","+f[3]+",", ","+v1Name+",") {
			return f[1], true
		}
	}
	t.Fatalf("the v1 controller %s is not mounted", v1Name)
	return "", true
}

// makeGroup makes a group below mount, with files written before anything joins,
// until the end of the test.
func makeGroup(t *testing.T, mount string, files map[string]string) (path string) {
	t.Helper()
	path = fmt.Sprintf("/rezolus-%s-%d", strings.ToLower(t.Name()), os.Getpid())
	if err := os.Mkdir(mount+path, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 200 {
			if err := os.Remove(mount + path); !errors.Is(err, unix.EBUSY) {
				return
			}
			time.Sleep(5 * time.Millisecond) // the kernel takes a moment to see that the last task is gone
		}
		t.Errorf("cgroup %s stays busy", path)
	})
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(mount+path, name), []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// inside runs a child in the group to its end.
func inside(t *testing.T, dir, word string) error {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "REZOLUS_CHILD=1", "GOMAXPROCS=1", "GOGC=off")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, word+"\n"); err != nil {
		t.Fatal(err)
	}
	return cmd.Wait()
}

// TestACgroupOfTwentyPercentIsThrottled burns 200 ms of CPU at 20 ms in each
// 100 ms: at least 8 periods must end throttled. It has the CPU before
// everybody else, or it would not come by its share on a busy machine.
func TestACgroupOfTwentyPercentIsThrottled(t *testing.T) {
	mount, v1 := controller(t, "cpu", "cpu")
	limits, files := map[string]string{"cpu.max": "20000 100000", "cpu.weight": "10000"}, bandwidth
	if v1 {
		limits, files = map[string]string{"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "20000", "cpu.shares": "262144"}, bandwidthV1
	}
	path := makeGroup(t, mount, limits)
	s := newSheet(bandwidthSampler, pathsOf(path), mount, 0, files)
	before := shown(t, s)
	if before["cgroup_cpu_bandwidth_quota "+path] != 20e6 || before["cgroup_cpu_bandwidth_period_duration "+path] != 100e6 {
		t.Errorf("limits are %v", before)
	}
	if before["cgroup_cpu_bandwidth_throttled_periods "+path] != 0 {
		t.Errorf("nothing ran, and it was throttled: %v", before)
	}
	if err := inside(t, mount+path, "burn"); err != nil {
		t.Fatal(err)
	}
	d := shown(t, s)
	throttled, all := d["cgroup_cpu_bandwidth_throttled_periods "+path], d["cgroup_cpu_bandwidth_periods "+path]
	if throttled < 8 || all < throttled {
		t.Errorf("%v of %v periods were throttled, want at least 8", throttled, all)
	}
	if got := d["cgroup_cpu_bandwidth_throttled_time "+path]; got < 8*50e6 {
		t.Errorf("throttled for %v ns, want at least 50 ms in each of 8 periods", got)
	}
}

func TestAnOOMKillInALimitedCgroup(t *testing.T) {
	mount, v1 := controller(t, "memory", "memory")
	limits, files := map[string]string{"memory.max": "33554432"}, memory
	if v1 {
		limits, files = map[string]string{"memory.limit_in_bytes": "33554432"}, memoryV1
	}
	path := makeGroup(t, mount, limits)
	s := newSheet(memorySampler, pathsOf(path), mount, 0, files)
	before := shown(t, s)
	if before["cgroup_memory_limit "+path] != 33554432 || before["cgroup_memory_events oom_kill "+path] != 0 {
		t.Errorf("at first %v", before)
	}
	if swap, ok := before["cgroup_swap_usage "+path]; ok && swap != 0 {
		t.Errorf("swap of an empty group is %v", swap)
	}
	if err := inside(t, mount+path, "eat"); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the child ended with %v", err)
	}
	d := shown(t, s)
	if d["cgroup_memory_events oom_kill "+path] != 1 {
		t.Errorf("%v kills, want 1", d["cgroup_memory_events oom_kill "+path])
	}
	if d["cgroup_memory_events max "+path] < 1 {
		t.Error("the limit was never met")
	}
	if got := d["cgroup_memory_page_faults "+path]; got < 16 {
		t.Errorf("%v page faults for 32 MiB of pages, be they of 2 MiB each", got)
	}
}

func TestTheMemoryOfACgroup(t *testing.T) {
	mount, v1 := controller(t, "memory", "memory")
	files := memory
	if v1 {
		files = memoryV1
	}
	path := makeGroup(t, mount, nil)
	s := newSheet(memorySampler, pathsOf(path), mount, 0, files)
	if limit, there := shown(t, s)["cgroup_memory_limit "+path]; there {
		t.Errorf("a limit of %v, and none is set", limit)
	}
	if err := inside(t, mount+path, "burn"); err != nil {
		t.Fatal(err)
	}
	got := shown(t, s)
	text, err := os.ReadFile(mount + path + "/" + files[0].name)
	if err != nil {
		t.Fatal(err)
	}
	want, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	if usage := got["cgroup_memory_usage "+path]; err != nil || usage > want+1<<20 || usage < want-1<<20 {
		t.Errorf("usage is %v, the file says %v, %v", usage, want, err)
	}
}

func TestTasksOfACgroup(t *testing.T) {
	mount, _ := controller(t, "pids", "pids")
	path := makeGroup(t, mount, map[string]string{"pids.max": "3"})
	s := newSheet(pidsSampler, pathsOf(path), mount, 0, pids)
	got := shown(t, s)
	if got["cgroup_pids "+path] != 0 || got["cgroup_pids_limit "+path] != 3 || got["cgroup_pids_refused "+path] != 0 {
		t.Errorf("empty: %v", got)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "REZOLUS_CHILD=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	threads := func() float64 {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return float64(len(entries))
	}
	if err := os.WriteFile(filepath.Join(mount+path, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	before := threads()
	if n := shown(t, s)["cgroup_pids "+path]; n < before || n > threads() {
		t.Errorf("%v tasks, /proc says %v to %v", n, before, threads())
	}
	in.Close()
	_ = cmd.Wait() // it may not have got a thread that it wanted
}

// TestReadsOfADiskByACgroup reads past the page cache, in the thread's own
// name.
func TestReadsOfADiskByACgroup(t *testing.T) {
	if h := host.CgroupMode(); h.V1() {
		for _, s := range Samplers(Hierarchies{V1: true, Groups: func(string) (Groups, string) { return pathsOf("/"), h.Mount }}) {
			if _, err := s.Open(); errors.Is(err, source.ErrUnsupported) != (s.Name == ioSampler || s.Name == pressureSampler) {
				t.Errorf("%s in v1: %v", s.Name, err)
			}
		}
		return
	}
	mount, _ := controller(t, "io", "blkio")
	disk := workload.NewDisk(t, 8<<20)
	path := makeGroup(t, mount, nil)
	s := newIO(pathsOf(path), mount, 0)
	if err := inside(t, mount+path, "read /dev/"+disk.Name); err != nil {
		t.Fatal(err)
	}
	got := shown(t, s)
	if n, b := got["cgroup_io_operations "+disk.Name+" "+path+" read"], got["cgroup_io_bytes "+disk.Name+" "+path+" read"]; n != 37 || b != 37*8192 {
		t.Errorf("%v reads of %v bytes, want 37 of %d: %v", n, b, 37*8192, got)
	}
}

func TestSheetsAllocateNothing(t *testing.T) {
	h := hierarchy(t)
	groups := tracked(t, h)
	s := newSheet(bandwidthSampler, groups, h.Mount, 0, map[bool][]file{false: bandwidth, true: bandwidthV1}[h.V1()])
	moved := newIO(groups, h.Mount, 0) // which has no files in v1, and then as little to do
	for _, r := range []readable{s, moved} {
		f := new(metric.Frame)
		if err := r.Read(f); err != nil {
			t.Fatal(err)
		}
		quietly(t, func() string { return allocations(t, r, f) })
	}
}
