// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"compress/gzip"
	"io"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/bpf"
	"rezolus/test/workload"
)

// ext4 mounts a small ext4 without a journal, made by
//
//	mkfs.ext4 -b 1024 -N 16 -m 0 -O ^has_journal,^resize_inode IMAGE 1024k
func ext4(t *testing.T) (dir string) {
	t.Helper()
	f, err := os.Open("testdata/ext4.img.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	packed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	image, err := io.ReadAll(packed)
	if err != nil {
		t.Fatal(err)
	}
	disk := workload.NewDisk(t, int64(len(image)))
	disk.Load(t, image)
	return disk.Mount(t, "ext4")
}

func tmpfs(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatalf("mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// onDisk is a folder on a file system that the virtual machines of amd64 have;
// others have no module for it.
func onDisk(magic int64, at string) func(t *testing.T) string {
	return func(t *testing.T) string {
		var fs unix.Statfs_t
		if err := unix.Statfs(at, &fs); err != nil || fs.Type != magic {
			if runtime.GOARCH == "amd64" {
				t.Errorf("%s is not what it should be: %v, %#x", at, err, fs.Type)
			}
			return ""
		}
		dir, err := os.MkdirTemp(at, "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		return dir
	}
}

func TestFsOperationsAreTimedByFileSystem(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := function(t, "fs/fs", h, "fs_latency")
		if m == nil {
			return
		}
		c := m.cgroup("files")
		for _, fs := range []string{"tmpfs", "ext4", "xfs", "btrfs"} {
			dir := map[string]func(*testing.T) string{"tmpfs": tmpfs, "ext4": ext4, "xfs": onDisk(unix.XFS_SUPER_MAGIC, "/mnt/xfs"),
				"btrfs": onDisk(unix.BTRFS_SUPER_MAGIC, "/mnt/btrfs")}[fs](t)
			if dir == "" {
				continue
			}
			f := workload.NewFolder(t, dir)
			undisturbed(t, func(b *books) {
				before, began := m.read(), time.Now()
				c.Thread(t, func() {
					f.Write(101)
					f.Read(37)
					f.Sync(5)
					f.Open(23)
					f.Stat(19)
					f.List(11)
					workload.Writes(7) // to a device, which is no file
				})
				took := uint64(time.Since(began))
				d := m.read().since(before)
				for op, want := range map[string]uint64{"write": 101, "read": 37, "fsync": 5, "open": 23, "stat": 19, "readdir": 11} {
					d.want(t, "cgroup_fs_operations{name="+c.Path+",op="+op+"}", want)
					// Less than all the time, more than nothing.
					d.within(t, "cgroup_fs_time{name="+c.Path+",op="+op+"}", want*20, took)
					series := "fs_latency{fs=" + fs + ",op=" + op + "}"
					if got := d.count(t, series); got < want {
						t.Errorf("%s = %d, want %d or more", series, got, want)
					}
					if fs != "tmpfs" { // which every machine uses
						b.want(d, series, want)
					}
				}
				b.near("operations in the cgroups, timed or lost", d.total("cgroup_fs_operations"),
					d.total("fs_latency")+d.total("fs_discarded_samples"), 0)
			})
		}
	})
}

func TestFsSyncsOfExt4(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "fs/fs", h, "fs_ext4")
		f := workload.NewFolder(t, ext4(t))
		undisturbed(t, func(b *books) {
			before := m.read()
			f.Write(3)
			f.Sync(13)
			d := m.read().since(before)
			if got := d.count(t, "fs_ext4_sync_latency"); got < 13 {
				t.Errorf("%d times ext4 was synchronized, want 13 or more", got)
			}
			b.want(d, "fs_ext4_sync_latency", 13)
			b.want(d, "fs_ext4_discarded_samples", 0)
		})
	})
}

// TestReadersThatWaitHideNoOthers: on a pipe or a socket a thread may wait in
// read(2) for ever. Those that do must not use up what the kernel has to find
// the end of a function by.
func TestReadersThatWaitHideNoOthers(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := function(t, "fs/fs", h, "fs_latency")
		if m == nil {
			return
		}
		c, f := m.cgroup("readers"), workload.NewFolder(t, tmpfs(t))
		f.Write(1)
		workload.Waiters(t, 20+4*runtime.NumCPU()) // kretprobes expect 10 or 2 a CPU
		before := m.read()
		c.Thread(t, func() { f.Read(37) })
		d := m.read().since(before)
		d.want(t, "cgroup_fs_operations{name="+c.Path+",op=read}", 37)
	})
}
