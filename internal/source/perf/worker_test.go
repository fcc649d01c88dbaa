// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
)

// What the worker does, in primes.
const (
	minorFaults = 1009
	majorFaults = 17
	moves       = 31
	burn        = 101 * time.Millisecond
)

const workerEnv = "REZOLUS_PERF_WORKER"

// TestMain is also the worker: a process that is born in a control group of
// its own, does a known amount of work when told to, and says what the kernel
// has of it by getrusage(2) and clock_gettime(2).
func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) == "" {
		os.Exit(m.Run())
	}
	debug.SetGCPercent(-1)
	runtime.LockOSThread()
	in := bufio.NewReader(os.Stdin)
	// The runtime preempts by signals. One that comes while a page is read
	// makes two faults of it, of which the second finds the page.
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	check(unix.PthreadSigmask(unix.SIG_BLOCK, &all, nil))
	pages, missing := prepare()
	fmt.Println("ready")
	if _, err := in.ReadString('\n'); err != nil {
		os.Exit(1)
	}
	cpu := cpuTime(unix.CLOCK_PROCESS_CPUTIME_ID)
	var before, after unix.Rusage
	check(unix.Getrusage(unix.RUSAGE_SELF, &before))
	for i := range minorFaults {
		pages[i*os.Getpagesize()] = 1
	}
	for i := range majorFaults {
		sinkByte += missing[i*os.Getpagesize()]
	}
	for i := range moves {
		pin(0, (i+1)%2)
	}
	for end := threadCPU() + int64(burn); threadCPU() < end; {
	}
	check(unix.Getrusage(unix.RUSAGE_SELF, &after))
	fmt.Println(after.Minflt-before.Minflt, after.Majflt-before.Majflt, cpuTime(unix.CLOCK_PROCESS_CPUTIME_ID)-cpu)
	io.Copy(io.Discard, in) // until the test is done with the group
}

var sinkByte byte

func check(err error) {
	if err != nil {
		fmt.Println("worker:", err)
		os.Exit(1)
	}
}

func cpuTime(clock int32) int64 {
	var ts unix.Timespec
	check(unix.ClockGettime(clock, &ts))
	return ts.Nano()
}

func threadCPU() int64 { return cpuTime(unix.CLOCK_THREAD_CPUTIME_ID) }

func pin(tid, cpu int) {
	var set unix.CPUSet
	set.Set(cpu)
	check(unix.SchedSetaffinity(tid, &set))
}

// prepare maps memory that nothing is in yet: pages whose first touch the
// kernel serves from memory, and those of a file that it must read first.
func prepare() (pages, missing []byte) {
	size := os.Getpagesize()
	pages, err := unix.Mmap(-1, 0, minorFaults*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	check(err)
	check(unix.Madvise(pages, unix.MADV_NOHUGEPAGE))
	file, err := os.CreateTemp(files(), "perf")
	check(err)
	defer file.Close()
	check(os.Remove(file.Name()))
	_, err = file.Write(make([]byte, majorFaults*size))
	check(err)
	check(file.Sync())
	missing, err = unix.Mmap(int(file.Fd()), 0, majorFaults*size, unix.PROT_READ, unix.MAP_SHARED)
	check(err)
	check(unix.Madvise(missing, unix.MADV_RANDOM))
	check(unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED))
	return pages, missing
}

// files is where the worker has its file: where the test machine has a disk, or
// among the temporary files.
func files() string {
	if _, err := os.Stat("/mnt/ext4"); err == nil && os.Getenv("REZOLUS_VM") != "" {
		return "/mnt/ext4"
	}
	return os.TempDir()
}

// onDisk tells that the worker's file is read from a device; in memory it
// causes no major faults.
func onDisk(t testing.TB) bool {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(files(), &fs); err != nil {
		t.Fatal(err)
	}
	return fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.RAMFS_MAGIC
}

// worker is such a process.
type worker struct {
	t    testing.TB
	path string // of its control group
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

// pinned runs f on a CPU.
func pinned(t testing.TB, cpu int, f func() error) error {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.SchedSetaffinity(0, &old); err != nil {
			t.Error(err)
		}
	}()
	pin(0, cpu)
	return f()
}

// unified is where the hierarchy that perf events know is mounted here.
func unified(t testing.TB) string {
	t.Helper()
	mount := host.CgroupMode().Unified
	if mount == "" {
		t.Fatal("no unified cgroup hierarchy is mounted; this test needs one")
	}
	return mount
}

// enablePerf has the kernel give new groups their perf_event controller. It does
// so by itself, but only once any controller was switched on below the root, as
// every init does but that of the test machine.
func enablePerf(t testing.TB, mount string) {
	t.Helper()
	file := mount + "/cgroup.subtree_control"
	now, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	there, err := os.ReadFile(mount + "/cgroup.controllers")
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("REZOLUS_VM") == "" || len(strings.Fields(string(now))) > 0 || len(strings.Fields(string(there))) == 0 {
		return
	}
	one := strings.Fields(string(there))[0]
	for _, sign := range []string{"+", "-"} {
		if err := os.WriteFile(file, []byte(sign+one), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// newWorker starts one in a new group right below the root.
func newWorker(t testing.TB) *worker {
	t.Helper()
	mount := unified(t)
	enablePerf(t, mount)
	w := &worker{t: t, path: fmt.Sprintf("/rezolus-perf-%d", os.Getpid())}
	if err := os.Mkdir(mount+w.path, 0o755); err != nil {
		t.Fatalf("%v: this test needs root", err)
	}
	dir, err := os.Open(mount + w.path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	w.cmd = exec.Command("/proc/self/exe")
	w.cmd.Env = append(os.Environ(), workerEnv+"=1", "GOMAXPROCS=1")
	w.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	w.cmd.Stderr = os.Stderr
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.out = bufio.NewReader(out)
	// It begins on CPU 0 with all its threads, so that none moves by itself.
	err = pinned(t, 0, w.cmd.Start)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.in.Close()
		if err := w.cmd.Wait(); err != nil {
			t.Errorf("worker: %v", err)
		}
		if err := os.Remove(mount + w.path); err != nil {
			t.Error(err)
		}
	})
	if line := w.line(); line != "ready\n" {
		t.Fatalf("worker says %q", line)
	}
	return w
}

func (w *worker) line() string {
	w.t.Helper()
	line, err := w.out.ReadString('\n')
	if err != nil {
		w.t.Fatalf("worker: %q, %v", line, err)
	}
	return line
}

// work has it work, and is what the kernel tells the process of that.
func (w *worker) work() (minor, major uint64, cpu int64) {
	w.t.Helper()
	if _, err := io.WriteString(w.in, "go\n"); err != nil {
		w.t.Fatal(err)
	}
	if _, err := fmt.Sscan(w.line(), &minor, &major, &cpu); err != nil {
		w.t.Fatal(err)
	}
	return minor, major, cpu
}
