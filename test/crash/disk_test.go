// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// disk is an ext4 of its own, in a file on a memory file system. It can be
// made to fail as disks do.
type disk struct {
	t      *testing.T
	dir    string // where it is mounted
	under  string // the memory file system
	device string
}

// makeDisk makes one of so many MiB.
func makeDisk(t *testing.T, size int64) *disk {
	t.Helper()
	d := &disk{t: t, dir: filepath.Join(t.TempDir(), "disk"), under: filepath.Join(t.TempDir(), "under")}
	for _, dir := range []string{d.dir, d.under} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("tmpfs", d.under, "tmpfs", 0, fmt.Sprintf("size=%dm", 2*size)); err != nil {
		t.Fatalf("mount: %v; these tests need root", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(d.under, unix.MNT_DETACH) })
	image := filepath.Join(d.under, "image")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, size<<20)); err != nil {
		t.Fatal(err)
	}
	d.command("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", image)
	d.attach(image)
	t.Cleanup(func() { _ = unix.Unmount(d.dir, unix.MNT_DETACH) })
	return d
}

// attach mounts an image.
func (d *disk) attach(image string) {
	d.t.Helper()
	device := strings.TrimSpace(d.command("losetup", "--find", "--show", image))
	d.device = device
	d.t.Cleanup(func() { _ = d.tool("losetup", "-d", device).Run() }) // it goes when nobody uses it any more
	if err := unix.Mount(d.device, d.dir, "ext4", 0, "errors=remount-ro"); err != nil {
		d.t.Fatal(err)
	}
}

// tool is a program that may be where only root looks.
func (d *disk) tool(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	if path, err := exec.LookPath("/usr/sbin/" + name); err == nil {
		cmd.Path, cmd.Err = path, nil
	}
	return cmd
}

func (d *disk) command(name string, args ...string) string {
	d.t.Helper()
	out, err := d.tool(name, args...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// fill writes a file until there is no room.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.Copy(f, endless{}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// replace puts what is left of the disk in order, on another one, and mounts
// that in its place, as one does whose disk failed. Those who had files of it
// open have nothing of them any more.
func (d *disk) replace() {
	d.t.Helper()
	_ = unix.Unmount(d.dir, unix.MNT_DETACH)
	fresh := filepath.Join(d.under, "fresh")
	d.command("cp", "--sparse=always", filepath.Join(d.under, "image"), fresh)
	// 1 is that it corrected something.
	if out, err := d.tool("e2fsck", "-fy", fresh).CombinedOutput(); err != nil && !strings.Contains(err.Error(), "exit status 1") {
		d.t.Fatalf("%v\n%s", err, out)
	}
	d.attach(fresh)
}

// fault is what happens to a disk under an agent's ring and a recording.
type fault struct {
	name   string
	reason string        // of the gap; one of several, with "|" between them
	fail   func(d *disk) // makes it fail
	heal   func(d *disk) // and puts it in order
	anew   bool          // what was open before is lost for good
}

var faults = []fault{
	{"full", "no space left on device",
		func(d *disk) { fill(d.t, filepath.Join(d.dir, "filler")) },
		func(d *disk) {
			if err := os.Remove(filepath.Join(d.dir, "filler")); err != nil {
				d.t.Fatal(err)
			}
		}, false},
	// What the kernel does with a disk on which it finds something wrong.
	{"read-only", "read-only file system",
		func(d *disk) {
			trigger := filepath.Join("/sys/fs/ext4", filepath.Base(d.device), "trigger_fs_error")
			if err := os.WriteFile(trigger, []byte("a test"), 0); err != nil {
				d.t.Fatal(err)
			}
		}, (*disk).replace, true},
	// The device below takes no more bytes: its writes fail.
	{"failing", "input/output error|read-only file system",
		func(d *disk) { fill(d.t, filepath.Join(d.under, "filler")) },
		func(d *disk) {
			if err := os.Remove(filepath.Join(d.under, "filler")); err != nil {
				d.t.Fatal(err)
			}
			d.replace()
		}, true},
	// Writes come back only when it goes on.
	{"hung", "the disk did not keep up",
		func(d *disk) { d.freeze(freezes) },
		func(d *disk) { d.freeze(thaws) }, false},
}

// What FIFREEZE and FITHAW are (linux/fs.h).
const (
	freezes = 0xc0045877
	thaws   = 0xc0045878
)

func (d *disk) freeze(request uint) {
	d.t.Helper()
	dir, err := os.Open(d.dir)
	if err == nil {
		defer dir.Close()
		err = unix.IoctlSetInt(int(dir.Fd()), request, 0)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// ringStatus is what an agent says of its ring.
type ringStatus struct {
	State, Reason string
	Ticks, Errors uint64
	Lost          uint64 `json:"ticks_lost"`
}

func ringOf(t *testing.T, p *process) ringStatus {
	t.Helper()
	var all []ringStatus
	if err := get(p.url+"hindsight", &all); err != nil || len(all) != 1 {
		t.Fatalf("%v: %v", all, err)
	}
	return all[0]
}

// TestDisksThatFail takes the disk away from a real agent and a real recorder
// in all the ways in which disks go. Sampling goes on, and it is told what was
// lost, and why.
func TestDisksThatFail(t *testing.T) {
	rezolus(t)
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.test(t)
		})
	}
}

func (f fault) test(t *testing.T) {
	d := makeDisk(t, 24)
	config := filepath.Join(t.TempDir(), "agent.toml")
	configure(t, config, "127.0.0.1:0", filepath.Join(d.dir, "ring"), 20*time.Millisecond, few)
	a := startAgent(t, rezolus(t), config)
	file := filepath.Join(d.dir, "x.rzr")
	r := launch(t, rezolus(t), "record", "-i", "20ms", "--url", a.url, "-o", file)
	watch := followed(t, a.url, 20*time.Millisecond)
	await(t, "ticks are kept", func() bool { return ringOf(t, a).Ticks > 20 && size(file) > 20_000 })
	kept := ringOf(t, a).Ticks

	f.fail(d)
	before := len(watch.seen())
	await(t, "the agent says that its ring fails", func() bool {
		s := ringOf(t, a)
		return s.State == "failing" && (s.Lost > 10 || f.name == "hung")
	})
	await(t, "sampling goes on", func() bool { return len(watch.seen()) > before+200 })
	var answer struct{ Data struct{ Result []any } }
	if err := get(a.url+"api/v1/query?query=sum(rate(cpu_usage[1s]))", &answer); err != nil || len(answer.Data.Result) != 1 {
		t.Errorf("meanwhile the agent answers %v: %v", answer.Data.Result, err)
	}
	if f.anew {
		f.lost(t, r, file)
	}
	f.heal(d)
	var s ringStatus
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%+v\n%s", s, a.said.String())
		}
	})
	await(t, "the ring goes on", func() bool {
		s = ringOf(t, a)
		return s.State == "recording" && s.Ticks > kept+50
	})
	if !f.anew {
		await(t, "the recorder goes on", func() bool { n := size(file); time.Sleep(50 * time.Millisecond); return size(file) > n })
		r.end()
		if f.name != "hung" { // for which the connection may have room
			f.told(t, file)
		}
	}
	dump := filepath.Join(t.TempDir(), "dump.rzr")
	if !download(t, a.url, dump) {
		t.Fatal("the ring gives no dump")
	}
	f.told(t, dump)
	a.end()
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// lost ends a recorder whose disk will not come back. It says so, and what it
// had is in the file.
func (f fault) lost(t *testing.T, r *process, file string) {
	t.Helper()
	_ = r.cmd.Process.Signal(syscall.SIGINT)
	<-r.ended
	if r.err == nil || !f.says(r.said.String()) {
		t.Errorf("the recorder ends with %v and says %q", r.err, r.said.String())
	}
	tornEnd(t, file)
	if ticks, _ := read(t, file); len(ticks) < 20 {
		t.Errorf("%d ticks are left of its recording", len(ticks))
	}
}

func (f fault) says(text string) bool {
	return slices.ContainsFunc(strings.Split(f.reason, "|"), func(reason string) bool { return strings.Contains(text, reason) })
}

// told checks that a recording tells of every tick that is missing in it, and
// why.
func (f fault) told(t *testing.T, path string) {
	t.Helper()
	d := describe(t, path)
	due := uint64(d.End-d.Start)/uint64(d.Every) + 1
	// A tick of which a failing disk kept more than it said is there and lost.
	if sum := d.Ticks + d.Missed; sum < due || sum > due+due/100 || d.Missed == 0 {
		t.Errorf("%s: %d ticks and %d missed in the time of %d; gaps %+v", path, d.Ticks, d.Missed, due, d.Gaps)
	}
	for _, g := range d.Gaps {
		if f.says(g.Reason) && g.Ticks > 0 {
			return
		}
	}
	t.Errorf("%s: no gap says %q: %+v", path, f.reason, d.Gaps)
}
