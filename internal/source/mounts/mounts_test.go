// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/metric"
)

// The first thread is that of /proc/self: no test may have it and change its
// namespaces, so the main goroutine keeps it.
func init() { runtime.LockOSThread() }

func values(f *metric.Frame) map[string]uint64 {
	m := map[string]uint64{}
	for _, s := range f.Schema.Series {
		m[strings.Join(append([]string{s.Desc.Name}, s.Values...), " ")] = f.Values[s.Off]
	}
	return m
}

func read(t testing.TB, s *Source) map[string]uint64 {
	t.Helper()
	var f metric.Frame
	if err := s.Read(&f); err != nil {
		t.Fatal(err)
	}
	if f.Begin <= 0 || f.End < f.Begin || len(f.Values) != f.Schema.Words {
		t.Fatalf("frame from %d to %d with %d of %d words", f.Begin, f.End, len(f.Values), f.Schema.Words)
	}
	return values(&f)
}

func expect(t testing.TB, got map[string]uint64, want map[string]int64) {
	t.Helper()
	for key, want := range want {
		if value, ok := got[key]; !ok && want >= 0 || ok && int64(value) != want {
			t.Errorf("%s = %d, %v; want %d", key, value, ok, want)
		}
	}
}

// table is a mountinfo that a test writes.
type table struct {
	t    testing.TB
	path string
}

func newTable(t testing.TB, lines ...string) table {
	w := table{t, filepath.Join(t.TempDir(), "mountinfo")}
	w.write(lines...)
	return w
}

func (w table) write(lines ...string) {
	w.t.Helper()
	if err := os.WriteFile(w.path, []byte(strings.Join(lines, "")), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w table) open(ask func([]byte, mount) (usage, error), wait time.Duration, limit int) *Source {
	w.t.Helper()
	s, err := open(w.path, ask, wait, limit)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return s
}

func line(id, number int, point, kind, device string) string {
	return fmt.Sprintf("%d 1 8:%d / %s rw,relatime shared:1 - %s %s rw\n", id, number, point, kind, device)
}

// byNumber answers with the number of the mount.
func byNumber(_ []byte, m mount) (usage, error) {
	return usage{m.id * 1000, m.id * 100, m.id * 10, m.id, m.id - 1, m.id % 2}, nil
}

func TestWhatIsToldOfAMount(t *testing.T) {
	s := newTable(t, line(21, 1, "/", "ext4", "/dev/sda1"), line(22, 2, `/a\040b`, "xfs", "/dev/sdb"), line(23, 3, "/proc", "proc", "proc")).
		open(byNumber, time.Minute, 10)
	got := read(t, s)
	expect(t, got, map[string]int64{
		"filesystem_size /dev/sda1 / ext4": 21000, "filesystem_free /dev/sda1 / ext4": 2100, "filesystem_available /dev/sda1 / ext4": 210,
		"filesystem_inodes /dev/sda1 / ext4": 21, "filesystem_inodes_free /dev/sda1 / ext4": 20, "filesystem_read_only /dev/sda1 / ext4": 1,
		"filesystem_size /dev/sdb /a b xfs": 22000, "filesystem_read_only /dev/sdb /a b xfs": 0,
		"filesystem_mounts_hung": 0, "filesystem_mounts_failed": 0, "filesystem_mounts_hidden": 0,
	})
	if len(got) != 2*len(mountDescs)+3 {
		t.Errorf("read %v", got)
	}
}

func TestOneMountAFileSystem(t *testing.T) {
	text := line(1, 1, "/", "ext4", "/dev/sda1") +
		"2 1 8:1 /home/x /bind rw - ext4 /dev/sda1 rw\n" + // a part of it
		line(3, 1, "/again", "ext4", "/dev/sda1") + // all of it again
		line(4, 4, "/srv", "btrfs", "/dev/sdc") + "5 1 8:4 /sub /s rw - btrfs /dev/sdc rw\n" + // a subvolume with a shorter path
		line(6, 6, "/shm", "tmpfs", "tmpfs") + line(7, 7, "/shm", "tmpfs", "other") + // covered
		line(8, 8, "/var/lib/x/merged", "overlay", "overlay") +
		line(9, 9, "/sys/fs/cgroup", "cgroup2", "cgroup2") + line(10, 10, "/snap/x", "squashfs", "/dev/loop1")
	got, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var ids []uint64
	for _, m := range got {
		ids = append(ids, m.id)
	}
	if want := "[1 4 7]"; fmt.Sprint(ids) != want {
		t.Errorf("mounts %v, want %s", ids, want)
	}
	if got, err := parse(line(8, 8, "/", "overlay", "overlay")); err != nil || len(got) != 1 {
		t.Errorf("the root of a container: %v, %v", got, err)
	}
	for _, text := range []string{"x\n", "1 2 8:1 / / rw\n", "a 1 8:1 / / rw - ext4 x rw\n", "1 1 8:1 / / rw - ext4\n", "\n"} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestMountsComeAndGo(t *testing.T) {
	w := newTable(t, line(1, 1, "/", "ext4", "a"), line(2, 2, "/b", "ext4", "b"))
	s := w.open(byNumber, time.Minute, 2)
	read(t, s)
	before := s.schema
	read(t, s)
	if s.schema != before {
		t.Error("another schema for the same mounts")
	}
	gone := s.workers[1]
	w.write(line(1, 1, "/", "ext4", "a"), line(3, 3, "/c", "ext4", "c"), line(4, 4, "/d", "ext4", "d"))
	expect(t, read(t, s), map[string]int64{"filesystem_size a / ext4": 1000, "filesystem_size b /b ext4": -1,
		"filesystem_size c /c ext4": 3000, "filesystem_size d /d ext4": -1, "filesystem_mounts_hidden": 1})
	if _, open := <-gone.questions; open {
		t.Error("a mount that is gone is still asked")
	}
	w.write("nonsense\n")
	if err := s.Read(&metric.Frame{}); err == nil {
		t.Error("nonsense is accepted")
	}
}

// hanging answers for a mount only when the test says so.
type hanging struct {
	device string
	asked  chan struct{}
	answer chan error
}

func (h hanging) ask(_ []byte, m mount) (usage, error) {
	if m.device != h.device {
		return byNumber(nil, m)
	}
	h.asked <- struct{}{}
	if err := <-h.answer; err != nil {
		return usage{}, err
	}
	return byNumber(nil, m)
}

// TestAHungMountIsInNobodysWay has a server that is away at first, answers, and
// then hangs again.
func TestAHungMountIsInNobodysWay(t *testing.T) {
	h := hanging{"server:/x", make(chan struct{}, 10), make(chan error, 10)}
	w := newTable(t, line(1, 1, "/", "ext4", "a"), line(2, 2, "/nfs", "nfs4", h.device), line(3, 3, "/c", "ext4", "c"))
	s := w.open(h.ask, 500*time.Millisecond, 10)
	const key = "filesystem_size server:/x /nfs nfs4"
	others := map[string]int64{"filesystem_size a / ext4": 1000, "filesystem_size c /c ext4": 3000}
	hung := func(n, value int64) {
		t.Helper()
		got := read(t, s)
		expect(t, got, others)
		expect(t, got, map[string]int64{key: value, "filesystem_mounts_hung": n})
	}
	hung(1, -1)
	s.wait = time.Hour // a mount that hung is not waited for again, or this never ends
	for range 20 {
		hung(1, -1)
	}
	if len(h.asked) != 1 {
		t.Errorf("the server was asked %d times while it did not answer", len(h.asked))
	}
	h.answer <- nil // the first question's
	h.answer <- nil // the next read's
	await(t, func() bool { return read(t, s)[key] == 2000 })
	h.answer <- nil
	expect(t, read(t, s), others)
	// It fails instead of hanging.
	h.answer <- unix.ESTALE
	await(t, func() bool { return read(t, s)["filesystem_mounts_failed"] == 1 })
}

func await(t testing.TB, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); {
		if time.Now().After(end) {
			t.Fatal("what was waited for did not come within 30 s")
		}
	}
}

// TestCallsThatHangAreBounded has a mount go whose call never ended: it takes
// the place of another until it does.
func TestCallsThatHangAreBounded(t *testing.T) {
	h := hanging{"server:/x", make(chan struct{}, 10), make(chan error, 10)}
	w := newTable(t, line(1, 1, "/", "ext4", "a"), line(2, 2, "/nfs", "nfs4", h.device))
	s := w.open(h.ask, 500*time.Millisecond, 2)
	expect(t, read(t, s), map[string]int64{"filesystem_mounts_hung": 1, "filesystem_mounts_hidden": 0})
	w.write(line(1, 1, "/", "ext4", "a"))
	expect(t, read(t, s), map[string]int64{"filesystem_mounts_hung": 0, "filesystem_mounts_hidden": 0})
	w.write(line(1, 1, "/", "ext4", "a"), line(3, 3, "/c", "ext4", "c"))
	expect(t, read(t, s), map[string]int64{"filesystem_size c /c ext4": -1, "filesystem_mounts_hidden": 1})
	ended := s.gone[0]
	h.answer <- nil
	await(t, func() bool { return len(ended.answers) == 1 })
	w.write(line(1, 1, "/", "ext4", "a"), line(4, 4, "/c", "ext4", "c"))
	expect(t, read(t, s), map[string]int64{"filesystem_size c /c ext4": 4000, "filesystem_mounts_hidden": 0})
}

// TestManyHungMountsCostOneWait has 20 mounts hang at once.
func TestManyHungMountsCostOneWait(t *testing.T) {
	var lines []string
	for i := range 20 {
		lines = append(lines, line(i, i, fmt.Sprint("/m", i), "nfs4", fmt.Sprint("s", i)))
	}
	release := make(chan struct{})
	var ended sync.WaitGroup
	ended.Add(20)
	s := newTable(t, append(lines, line(99, 99, "/", "ext4", "a"))...).open(func(_ []byte, m mount) (usage, error) {
		if m.kind == "nfs4" {
			defer ended.Done()
			<-release
		}
		return byNumber(nil, m)
	}, 500*time.Millisecond, 50)
	began := time.Now()
	expect(t, read(t, s), map[string]int64{"filesystem_mounts_hung": 20, "filesystem_size a / ext4": 99000})
	if took := time.Since(began); took > 9500*time.Millisecond {
		t.Errorf("a read with 20 hung mounts took %v", took)
	}
	close(release)
	ended.Wait()
}

func TestMountsWithoutSpaceAreNotShown(t *testing.T) {
	s := newTable(t, line(1, 1, "/", "ext4", "a"), line(2, 2, "/b", "fuse", "b")).open(func(_ []byte, m mount) (usage, error) {
		if m.id == 2 {
			return usage{}, errCovered
		}
		return byNumber(nil, m)
	}, time.Minute, 10)
	expect(t, read(t, s), map[string]int64{"filesystem_size b /b fuse": -1, "filesystem_mounts_failed": 0, "filesystem_mounts_hung": 0})
}

// privateMounts gives the test's thread a mount namespace of its own. It needs
// root.
func privateMounts(t testing.TB) {
	t.Helper()
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatalf("unshare: %v; this test needs root", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil && !errors.Is(err, unix.EINVAL) {
		t.Fatal(err)
	}
}

func mountTmpfs(t testing.TB, at, options string) {
	t.Helper()
	if err := unix.Mount("rezolus-test", at, "tmpfs", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// TestSpaceAndInodes fills a tmpfs of 8 MiB and 101 inodes with a file of
// 3 MiB and 16 empty ones, and covers another.
func TestSpaceAndInodes(t *testing.T) {
	privateMounts(t)
	at, covered := t.TempDir(), t.TempDir()
	mountTmpfs(t, covered, "size=4m")
	mountTmpfs(t, covered, "size=5m")
	mountTmpfs(t, at, "size=8m,nr_inodes=101")
	// The workers run on other threads, which do not see the mounts: they
	// ask through this one's root.
	root := fmt.Sprintf("/proc/%d/task/%d/root", os.Getpid(), unix.Gettid())
	s, err := open("/proc/thread-self/mountinfo", func(_ []byte, m mount) (usage, error) {
		return measure(cString(root+m.point), m)
	}, time.Minute, maxMounts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	key := func(what, at string) string { return "filesystem_" + what + " rezolus-test " + at + " tmpfs" }
	expect(t, read(t, s), map[string]int64{key("size", at): 8 << 20, key("free", at): 8 << 20, key("available", at): 8 << 20,
		key("inodes", at): 101, key("inodes_free", at): 100, key("read_only", at): 0, key("size", covered): 5 << 20})
	if err := os.WriteFile(at+"/three", make([]byte, 3<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range 16 {
		if err := os.WriteFile(fmt.Sprint(at, "/", i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	expect(t, read(t, s), map[string]int64{key("size", at): 8 << 20, key("free", at): 5 << 20, key("available", at): 5 << 20,
		key("inodes", at): 101, key("inodes_free", at): 100 - 17, key("read_only", at): 1, "filesystem_mounts_failed": 0})
}

// TestAMountUnderAnotherIsNotShown covers the folder that a mount is in.
func TestAMountUnderAnotherIsNotShown(t *testing.T) {
	privateMounts(t)
	outer := t.TempDir()
	inner := outer + "/inner"
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	mountTmpfs(t, inner, "size=1m")
	inside := mountinfo(t)
	if err := unix.Mount("rezolus-test", outer, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	asked := 0
	ask := func() (err error) {
		for _, m := range inside {
			if m.point == inner {
				asked++
				_, err = measure(cString(inner), m)
			}
		}
		return err
	}
	if err := ask(); !errors.Is(err, errNotShown) {
		t.Errorf("without a folder of its name: %v", err)
	}
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := ask(); !errors.Is(err, errNotShown) {
		t.Errorf("with a folder of its name: %v", err)
	}
	if err := unix.Unmount(outer, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := ask(); err != nil || asked != 3 {
		t.Errorf("uncovered again, asked %d times: %v", asked, err)
	}
}

func mountinfo(t testing.TB) []mount {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	all, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestMountsOfTheMachine compares the root with what statfs says of it.
func TestMountsOfTheMachine(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	got := read(t, s)
	var root unix.Statfs_t
	if err := unix.Statfs("/", &root); err != nil {
		t.Fatal(err)
	}
	for key, value := range got {
		if strings.HasPrefix(key, "filesystem_size ") && strings.Contains(key, " / ") {
			if want := root.Blocks * uint64(root.Frsize); value != want {
				t.Errorf("%s = %d, want %d", key, value, want)
			}
		}
		if strings.Contains(key, "/proc ") || strings.Contains(key, "cgroup") {
			t.Errorf("%s is shown", key)
		}
	}
	if len(got) <= 3 {
		t.Errorf("read %v", got)
	}
	// Other tests mount and unmount meanwhile.
	await(t, func() bool {
		got := read(t, s)
		return got["filesystem_mounts_hung"]+got["filesystem_mounts_failed"]+got["filesystem_mounts_hidden"] == 0
	})
	var f metric.Frame
	await(t, func() bool {
		return testing.AllocsPerRun(50, func() {
			if err := s.Read(&f); err != nil {
				t.Fatal(err)
			}
		}) == 0
	})
}

func TestTheSamplerSaysWhatItIs(t *testing.T) {
	for _, s := range Samplers() {
		for _, d := range s.Descs {
			if err := d.Validate(); err != nil || d.Sampler != s.Name || d.Help == "" {
				t.Errorf("%+v: %v", d, err)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(line(1, 1, `/a\040b`, "ext4", "/dev/sda1") + line(2, 1, "/c", "ext4", "x"))
	f.Add("1 1 8:1 / / - x y\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parse(text)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, m := range all {
			if seen[m.number] || m.kind == "proc" {
				t.Errorf("%q gives %v", text, all)
			}
			seen[m.number] = true
		}
	})
}

func BenchmarkRead(b *testing.B) {
	s, err := New()
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var f metric.Frame
	for b.Loop() {
		if err := s.Read(&f); err != nil {
			b.Fatal(err)
		}
	}
}
