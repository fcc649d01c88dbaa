// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// follower is a tracker whose changes a test waits for.
type follower struct {
	*Cgroups
	t       testing.TB
	changed chan struct{}
}

func track(t testing.TB, opts CgroupOptions) *follower {
	t.Helper()
	c, err := TrackCgroups(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	f := &follower{c, t, make(chan struct{}, 1)}
	c.Subscribe(func(_, _ []Cgroup) {
		select {
		case f.changed <- struct{}{}:
		default:
		}
	})
	return f
}

// until waits for changes until ok.
func (f *follower) until(what string, ok func() bool) {
	f.t.Helper()
	deadline := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-f.changed:
		case <-deadline:
			f.t.Fatalf("never %s; there are %q", what, paths(f.Members()))
		}
	}
}

func paths(cgroups []Cgroup) (p []string) {
	for _, g := range cgroups {
		p = append(p, g.Path)
	}
	return p
}

func mkdir(t testing.TB, elem ...string) string {
	t.Helper()
	dir := filepath.Join(elem...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func remove(t testing.TB, elem ...string) {
	t.Helper()
	if err := os.Remove(filepath.Join(elem...)); err != nil {
		t.Fatal(err)
	}
}

func TestWalkFindsWhatIsThere(t *testing.T) {
	root := t.TempDir()
	mkdir(t, root, "b", "c")
	mkdir(t, root, "a")
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	c := track(t, CgroupOptions{Mount: root})
	if got, want := paths(c.Members()), []string{"/", "/a", "/b", "/b/c"}; !slices.Equal(got, want) {
		t.Errorf("members %q, want %q", got, want)
	}
	for _, g := range c.Members() {
		var s unix.Stat_t
		if err := unix.Stat(root+g.Path, &s); err != nil || s.Ino != g.ID || g.Born != 0 {
			t.Errorf("%+v: want inode %d (%v) and no birth", g, s.Ino, err)
		}
	}
	if c.Unwatched() != 0 || c.Untracked() != 0 || c.Generation() != 1 {
		t.Errorf("%d unwatched, %d untracked, generation %d", c.Unwatched(), c.Untracked(), c.Generation())
	}
}

func TestTrackNeedsAMount(t *testing.T) {
	if _, err := TrackCgroups(CgroupOptions{Mount: "/nowhere"}); !os.IsNotExist(err) && !strings.Contains(fmt.Sprint(err), "/nowhere") {
		t.Errorf("error %v, want one that names the mount", err)
	}
}

func TestSubscribersHearOfBirthsAndDeaths(t *testing.T) {
	root := t.TempDir()
	mkdir(t, root, "old")
	c, err := TrackCgroups(CgroupOptions{Mount: root})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	type change struct{ born, died []Cgroup }
	changes := make(chan change, 100)
	c.Subscribe(func(born, died []Cgroup) { changes <- change{born, died} })
	if first := <-changes; !slices.Equal(paths(first.born), []string{"/", "/old"}) || first.died != nil {
		t.Fatalf("told of %q and %q, want what is there", paths(first.born), paths(first.died))
	}
	began, generation := Wall(), c.Generation()
	mkdir(t, root, "new")
	birth := <-changes
	if !slices.Equal(paths(birth.born), []string{"/new"}) || birth.died != nil {
		t.Fatalf("told of %q and %q, want the birth", paths(birth.born), paths(birth.died))
	}
	if born := birth.born[0].Born; born < began || born > Wall() || c.Generation() == generation {
		t.Errorf("born at %d of %d, generation %d after %d", born, began, c.Generation(), generation)
	}
	remove(t, root, "new")
	if death := <-changes; death.born != nil || !slices.Equal(death.died, birth.born) {
		t.Errorf("told of %q and %q, want the death", paths(death.born), paths(death.died))
	}
}

// TestNobodyIsToldOfWhatIsGoneAlready: who is told of a death before the birth
// would keep the cgroup for ever.
func TestNobodyIsToldOfWhatIsGoneAlready(t *testing.T) {
	root := t.TempDir()
	mkdir(t, root, "old")
	c := track(t, CgroupOptions{Mount: root})
	c.mu.Lock()
	defer c.mu.Unlock()
	var born, died [][]Cgroup
	c.notify = append(c.notify, func(b, d []Cgroup) { born, died = append(born, b), append(died, d) })
	c.bury(c.bear("/brief", 1<<40))
	if c.tell(); len(born) != 0 {
		t.Errorf("told of %+v and %+v, of which nothing is left", born, died)
	}
	// The old one of a name dies, and the new one is there.
	old := c.root.children["old"]
	c.bury(old)
	stays := c.bear("/old", 1<<41)
	c.bury(c.bear("/brief", 1<<42))
	c.tell()
	if len(born) != 1 || !slices.Equal(born[0], []Cgroup{stays.Cgroup}) || !slices.Equal(died[0], []Cgroup{old.Cgroup}) {
		t.Errorf("told of %+v and %+v, want %+v and %+v", born, died, stays.Cgroup, old.Cgroup)
	}
}

func TestMembersAreNotChangedAfterwards(t *testing.T) {
	root := t.TempDir()
	c := track(t, CgroupOptions{Mount: root})
	before := c.Members()
	if again := c.Members(); &before[0] != &again[0] {
		t.Error("two slices in one generation")
	}
	mkdir(t, root, "a")
	c.until("a", func() bool { return len(c.Members()) == 2 })
	if !slices.Equal(paths(before), []string{"/"}) {
		t.Errorf("the slice became %q", paths(before))
	}
}

func TestAnotherOneOfTheSameName(t *testing.T) {
	root := t.TempDir()
	mkdir(t, root, "keep")
	mkdir(t, root, "a", "below")
	c := track(t, CgroupOptions{Mount: root})
	old := c.Members()
	// The inode number of the old one stays taken while it exists.
	if err := os.Rename(filepath.Join(root, "a"), filepath.Join(root, "keep", "a")); err != nil {
		t.Fatal(err)
	}
	mkdir(t, root, "a")
	c.until("renamed", func() bool {
		return slices.Equal(paths(c.Members()), []string{"/", "/a", "/keep", "/keep/a", "/keep/a/below"})
	})
	if now := c.Members(); now[1].ID == old[1].ID || now[3].ID != old[1].ID || now[4].ID != old[2].ID {
		t.Errorf("ids before %+v, after %+v", old, now)
	}
	mkdir(t, root, "keep", "a", "below", "more")
	c.until("a birth below what was renamed", func() bool {
		return slices.Contains(paths(c.Members()), "/keep/a/below/more")
	})
}

func TestLimit(t *testing.T) {
	root := t.TempDir()
	for i := range 5 {
		mkdir(t, root, strconv.Itoa(i))
	}
	c := track(t, CgroupOptions{Mount: root, Limit: 3, Rescan: time.Millisecond})
	if len(c.Members()) != 3 || c.Untracked() != 3 {
		t.Fatalf("%d members, %d untracked, want 3 and 3", len(c.Members()), c.Untracked())
	}
	gone := c.Members()[1].Path
	remove(t, root, gone)
	c.until("filled up", func() bool { return len(c.Members()) == 3 && c.Untracked() == 2 })
	if slices.Contains(paths(c.Members()), gone) {
		t.Errorf("%s is still there", gone)
	}
}

// TestQueueOverflow holds the tracker up while more happens than inotify keeps.
func TestQueueOverflow(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Fatal(err)
	}
	events, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	c := track(t, CgroupOptions{Mount: root})
	c.mu.Lock()
	for range events/2 + 100 {
		dir := mkdir(t, root, "x")
		remove(t, dir)
	}
	mkdir(t, root, "last", "nested")
	c.mu.Unlock()
	c.until("overflown and recovered", func() bool {
		return slices.Equal(paths(c.Members()), []string{"/", "/last", "/last/nested"})
	})
}

// TestWalkWhereWatchesDoNotSuffice runs itself in a user namespace with few
// watches (namespaces(7), /proc/sys/user/max_inotify_watches).
func TestWalkWhereWatchesDoNotSuffice(t *testing.T) {
	const env = "REZOLUS_TEST_FEW_WATCHES"
	if os.Getenv(env) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), env+"=1")
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if err := os.WriteFile("/proc/sys/user/max_inotify_watches", []byte("2"), 0); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	mkdir(t, root, "a", "b")
	c := track(t, CgroupOptions{Mount: root, Rescan: time.Millisecond})
	if c.Unwatched() != 1 {
		t.Fatalf("%d unwatched of 3 with 2 watches", c.Unwatched())
	}
	mkdir(t, root, "a", "b", "c", "d")
	c.until("found by walking", func() bool { return slices.Contains(paths(c.Members()), "/a/b/c/d") })
	remove(t, root, "a", "b", "c", "d")
	remove(t, root, "a", "b", "c")
	remove(t, root, "a", "b")
	c.until("all watched again", func() bool { return c.Unwatched() == 0 && len(c.Members()) == 2 })
}

// realTree makes a cgroup for the test in the hierarchy of this machine.
func realTree(t testing.TB) (mount, name string) {
	t.Helper()
	mount = CgroupMode().Mount
	if mount == "" {
		t.Fatal("no cgroup hierarchy is mounted; this test needs one")
	}
	name = fmt.Sprintf("/rezolus-host-%d", os.Getpid())
	if err := os.Mkdir(mount+name, 0o755); err != nil {
		t.Fatalf("%v: this test needs root", err)
	}
	t.Cleanup(func() { removeTree(t, mount+name) })
	return mount, name
}

// removeTree removes directories alone: the files of a cgroup go with it.
func removeTree(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			removeTree(t, filepath.Join(dir, e.Name()))
		}
	}
	remove(t, dir)
}

// TestRealCgroupsNestedAtOnce makes whole trees at once: no birth below a
// birth is missed, and no death.
func TestRealCgroupsNestedAtOnce(t *testing.T) {
	mount, name := realTree(t)
	c := track(t, CgroupOptions{Mount: mount})
	mine := func() int {
		n := 0
		for _, g := range c.Members() {
			if strings.HasPrefix(g.Path, name+"/") {
				n++
			}
		}
		return n
	}
	for i := range 23 {
		mkdir(t, mount, name, strconv.Itoa(i), "a", "b", "c")
	}
	c.until("all born", func() bool { return mine() == 23*4 })
	for i := range 23 {
		removeTree(t, filepath.Join(mount, name, strconv.Itoa(i)))
	}
	c.until("all dead", func() bool { return mine() == 0 })
	if c.Unwatched() != 0 {
		t.Errorf("%d unwatched", c.Unwatched())
	}
}

// TestRealCgroupIDIsTheKernels compares the id with the one in the file
// handle that the kernel gives out for a kernfs node (fs/kernfs/mount.c,
// FILEID_KERNFS), which is what BPF programs see.
func TestRealCgroupIDIsTheKernels(t *testing.T) {
	mount, name := realTree(t)
	c := track(t, CgroupOptions{Mount: mount})
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, mount+name, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := binary.NativeEndian.Uint64(handle.Bytes())
	at := slices.IndexFunc(c.Members(), func(g Cgroup) bool { return g.Path == name })
	if at < 0 || c.Members()[at].ID != want {
		t.Errorf("member %d of %+v: want id %d", at, c.Members(), want)
	}
}

func BenchmarkWalk(b *testing.B) {
	root := b.TempDir()
	for i := range 1000 {
		mkdir(b, root, strconv.Itoa(i/50), strconv.Itoa(i))
	}
	c := track(b, CgroupOptions{Mount: root})
	c.mu.Lock()
	defer c.mu.Unlock()
	for b.Loop() {
		c.walk()
	}
}
