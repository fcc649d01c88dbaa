// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

// puts puts ticks, does the work whenever it is asked for, and returns what was
// said, each error once.
func puts(r *Ring, c *clock, n int) (said []error) {
	for range n {
		if err := r.Put(c.tick()); err != nil && !slices.ContainsFunc(said, func(e error) bool { return e.Error() == err.Error() }) {
			said = append(said, err)
		}
		select {
		case <-r.wake:
			r.work()
		default:
		}
	}
	return said
}

// gapsOf are the gaps of all that a ring has.
func gapsOf(t *testing.T, r *Ring) []store.Gap {
	t.Helper()
	return dumped(t, vfs.NewMem(), r, math.MinInt64, math.MaxInt64).Info().Gaps
}

// TestSomebodyRemovesTheDirectory does it with a real one: it is there again
// within two seconds, it is the ring's, and it tells what it does not have.
func TestSomebodyRemovesTheDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "above", "ring")
	r, err := open(vfs.OS, Options{Dir: dir, Age: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c := newClock(t)
	put(t, r, c, 20)
	if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
		t.Fatal(err)
	}
	if said := puts(r, c, 10); len(said) != 1 || !errors.Is(said[0], errRemoved) {
		t.Errorf("it says %v", said)
	}
	got := numbers(t, r)
	if n := len(got); n < 7 || !slices.Equal(got, run(31-uint64(n), 30)) {
		t.Fatalf("there are ticks %v, want those of the last seconds", got)
	}
	// Of those before the directory went, nobody can say more.
	first := c.s.Wall - 29*second
	want := []store.Gap{{From: first, To: c.s.Wall - int64(len(got))*second, Ticks: 30 - uint64(len(got)), Reason: "the ring's files were taken away"}}
	if gaps := gapsOf(t, r); !slices.Equal(gaps, want) {
		t.Errorf("gaps %+v, want %+v", gaps, want)
	}
	if _, err := vfs.OS.Lock(filepath.Join(dir, lockName)); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("the new directory is nobody's: %v", err)
	}
	if s := r.Status(); s.Trouble != nil || s.Lost != 0 || s.Segments != 1 {
		t.Errorf("status %+v", s)
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

// TestSomebodyRemovesFiles removes all files, the latest, one amid the others
// and the lock. What is left stays.
func TestSomebodyRemovesFiles(t *testing.T) {
	for what, want := range map[string]struct {
		gone    func(name string) bool
		has     []uint64
		missing uint64
	}{
		"all":        {func(string) bool { return true }, run(41, 50), 40},
		"the latest": {func(name string) bool { return name >= "000000000003." }, append(run(1, 30), run(41, 50)...), 10},
		"the second": {func(name string) bool { return name == "000000000001.rzr" }, append(run(1, 10), run(21, 50)...), 0},
		"the lock":   {func(name string) bool { return name == lockName }, run(1, 50), 0},
	} {
		t.Run(what, func(t *testing.T) {
			m, c := vfs.NewMem(), newClock(t)
			r := mustOpen(t, m, Options{Age: time.Hour, Segment: 10 * time.Second})
			put(t, r, c, 40)
			removed := 0
			for _, name := range append(names(t, m), lockName) {
				if want.gone(name) {
					removed++
					if err := m.Remove(path.Join("/ring", name)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if removed == 0 {
				t.Fatalf("the ring's files are %q", names(t, m))
			}
			r.work()
			if said := puts(r, c, 10); len(said) != 1 || !errors.Is(said[0], errMissing) {
				t.Errorf("it says %v", said)
			}
			if got := numbers(t, r); !slices.Equal(got, want.has) {
				t.Errorf("it has %v, want %v", got, want.has)
			}
			var missing uint64
			for _, g := range gapsOf(t, r) {
				missing += g.Ticks
			}
			if missing != want.missing {
				t.Errorf("%d ticks are told to be missing, want %d", missing, want.missing)
			}
			if err := r.close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// volume is a file system that can be mounted at /mnt.
type volume struct {
	*vfs.Mem
	device uint64
	made   bool // it has the directory
}

// mounts has one of several volumes at /mnt; that of the root directory is
// device 1, and what was open stays so, as after a lazy unmount.
type mounts struct {
	*volume
}

func (m mounts) Identify(name string) (vfs.ID, error) {
	switch {
	case name == "/":
		return vfs.ID{Device: 1, Inode: 2}, nil
	case name == "/mnt":
		return vfs.ID{Device: m.device, Inode: 2}, nil
	case !m.made:
		return vfs.ID{}, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return vfs.ID{Device: m.device, Inode: 3}, nil
}

func (m mounts) Mkdir(string) error {
	m.made = true
	return nil
}

// onDisk is a ring on a disk that is mounted, of 40 ticks, and the volume of the
// root directory.
func onDisk(t *testing.T) (m *mounts, r *Ring, c *clock, disk, root *volume) {
	t.Helper()
	root, disk = &volume{Mem: vfs.NewMem(), device: 1}, &volume{Mem: vfs.NewMem(), device: 2}
	m, c = &mounts{disk}, newClock(t)
	r, err := open(m, Options{Dir: "/mnt/ring", Age: time.Hour, Segment: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	put(t, r, c, 40)
	return m, r, c, disk, root
}

// list is what a volume has of the ring.
func (v *volume) list(t *testing.T) []string {
	t.Helper()
	all, err := v.List("/mnt/ring")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestItsFileSystemIsAway unmounts the disk: nothing is written beneath,
// whether there is such a directory or not, and all is there when it is back.
func TestItsFileSystemIsAway(t *testing.T) {
	for _, leftover := range []bool{false, true} {
		m, r, c, disk, root := onDisk(t)
		root.made = leftover
		before := disk.list(t)
		m.volume = root
		if said := puts(r, c, 200); len(said) != 1 || !errors.Is(said[0], errAway) {
			t.Fatalf("it says %v", said)
		}
		s := r.Status()
		if s.Lost < 195 || !errors.Is(s.Trouble, errAway) || root.made != leftover || len(root.list(t)) > 0 {
			t.Fatalf("away: %+v, beneath is %q", s, root.list(t))
		}
		if err := r.Each(t.Context(), 0, math.MaxInt64, nil); !errors.Is(err, errAway) {
			t.Errorf("to read it: %v", err)
		}
		m.volume = disk
		if said := puts(r, c, 20); len(said) != 1 || !errors.Is(said[0], errAway) {
			t.Errorf("back: %v", said)
		}
		lost := r.Status().Lost
		if want := append(run(1, 240-s.Lost), run(241+lost-s.Lost, 260)...); !slices.Equal(numbers(t, r), want) {
			t.Errorf("back: ticks %v, want %v", numbers(t, r), want)
		}
		if gaps := gapsOf(t, r); len(gaps) != 1 || gaps[0].Ticks != lost || !strings.Contains(gaps[0].Reason, errAway.Error()) || lost > 202 {
			t.Errorf("%d ticks are lost, gaps %+v", lost, gaps)
		}
		if after := disk.list(t); len(after) < len(before) {
			t.Errorf("files were %q and are %q", before, after)
		}
		if s := r.Status(); s.Trouble != nil || s.Dropped != 0 {
			t.Errorf("back: %+v", s)
		}
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestItEndsWhileItsFileSystemIsAway touches nothing beneath, either.
func TestItEndsWhileItsFileSystemIsAway(t *testing.T) {
	m, r, c, disk, root := onDisk(t)
	m.volume = root
	puts(r, c, 10)
	if err := r.close(); err != nil {
		t.Error(err)
	}
	if len(root.list(t)) > 0 {
		t.Errorf("beneath is %q", root.list(t))
	}
	again, err := open(&mounts{disk}, Options{Dir: "/mnt/ring", Age: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if got := numbers(t, again); len(got) < 40 || !slices.Equal(got, run(1, uint64(len(got)))) {
		t.Errorf("opened anew it has %v", got)
	}
}

// TestAnotherDiskInItsPlace: the ring goes on where its directory was made, and
// not before.
func TestAnotherDiskInItsPlace(t *testing.T) {
	m, r, c, _, _ := onDisk(t)
	fresh := &volume{Mem: vfs.NewMem(), device: 3}
	m.volume = fresh
	if said := puts(r, c, 10); len(said) != 1 || !errors.Is(said[0], errAway) || fresh.made {
		t.Fatalf("on a disk without its directory it says %v", said)
	}
	fresh.made = true
	puts(r, c, 10)
	if got := numbers(t, r); len(got) < 7 || !slices.Equal(got, run(61-uint64(len(got)), 60)) {
		t.Errorf("it has %v", got)
	}
	if s := r.Status(); s.Trouble != nil {
		t.Errorf("status %+v", s)
	}
}

// TestReadersOfWhatIsGone read on, and close what they had open.
func TestReadersOfWhatIsGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	r, err := open(vfs.OS, Options{Dir: dir, Age: time.Hour, Segment: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	c := newClock(t)
	put(t, r, c, 40)
	seen := 0
	err = r.Each(t.Context(), 0, math.MaxInt64, func(*metric.Snapshot) error {
		if seen++; seen == 1 {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			puts(r, c, 10)
		}
		return nil
	})
	if err != nil || seen < 40 {
		t.Errorf("%d ticks were read: %v", seen, err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if path, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(path, dir) && strings.HasSuffix(path, "(deleted)") {
			t.Errorf("%s is still open", path)
		}
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

// TestTicksThatTheAgentMissedMeanwhile are told of with those that were lost.
func TestTicksThatTheAgentMissedMeanwhile(t *testing.T) {
	m, r, c, disk, root := onDisk(t)
	m.volume = root
	puts(r, c, 5)
	c.s.Wall, c.s.Mono, c.s.Missed = c.s.Wall+3*second, c.s.Mono+3*second, 3
	puts(r, c, 1)
	c.s.Missed = 0
	puts(r, c, 5)
	// As one says for whom the disk was too slow.
	if err := r.Gap(store.Gap{From: c.s.Wall + second, To: c.s.Wall + 2*second, Ticks: 2, Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	c.s.Wall, c.s.Mono = c.s.Wall+2*second, c.s.Mono+2*second
	puts(r, c, 1)
	m.volume = disk
	puts(r, c, 10)
	gaps, lost := gapsOf(t, r), r.Status().Lost
	if len(gaps) != 1 || gaps[0].Ticks != lost+5 || uint64((gaps[0].To-gaps[0].From)/second)+1 != gaps[0].Ticks || lost < 9 {
		t.Errorf("%d ticks are lost and 5 were missed; gaps %+v", lost, gaps)
	}
}
