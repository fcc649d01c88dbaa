// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMonoIsTheKernelsClock(t *testing.T) {
	if originError > time.Millisecond {
		t.Errorf("the clocks were read %v apart", originError)
	}
	for range 1000 {
		before := clock(unix.CLOCK_MONOTONIC)
		now := Mono()
		after := clock(unix.CLOCK_MONOTONIC)
		if now < before-int64(originError) || now > after+int64(originError) {
			t.Fatalf("Mono is %d, the kernel's clock %d before and %d after; within %v", now, before, after, originError)
		}
	}
}

func TestBootTimeStays(t *testing.T) {
	first := BootTime()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nbtime ")
	seconds, err := time.ParseDuration(strings.Fields(rest)[0] + "s")
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Duration(first) - seconds; d < -2*time.Second || d > 2*time.Second {
		t.Errorf("boot time %d is %v from the btime of /proc/stat", first, d)
	}
	if BootTime() != first {
		t.Error("the boot time changes")
	}
}

func TestNewRun(t *testing.T) {
	a, b := NewRun("1.2.3"), NewRun("1.2.3")
	if a.ID == b.ID || a.Boot != b.Boot || a.Boot == [16]byte{} {
		t.Errorf("runs %x and %x of boots %x and %x", a.ID, b.ID, a.Boot, b.Boot)
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if a.Kernel+"\n" != string(release) || a.Host != name || a.Arch != runtime.GOARCH || a.Version != "1.2.3" {
		t.Errorf("run %+v, want kernel %q on %s", a, release, name)
	}
}

func TestParseBootID(t *testing.T) {
	id, err := parseBootID([]byte("01020304-0506-0708-090a-0b0c0d0e0f10\n"))
	if want := [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}; err != nil || id != want {
		t.Errorf("%x, %v", id, err)
	}
	for _, bad := range []string{"", "01020304", "0102030405060708090a0b0c0d0e0fxx"} {
		if _, err := parseBootID([]byte(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestParseKernel(t *testing.T) {
	f := func(release string, want Kernel) {
		t.Helper()
		want.Release = release
		if got, err := ParseKernel(release); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	f("6.18.44-fc-v669", Kernel{Major: 6, Minor: 18, Patch: 44})
	f("6.1.0-44-amd64", Kernel{Major: 6, Minor: 1})
	f("7.0-rc1", Kernel{Major: 7})
	f("5.15.0+", Kernel{Major: 5, Minor: 15})
	for _, bad := range []string{"", "6", "-6.1", "v6.1"} {
		if _, err := ParseKernel(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	k := Kernel{Major: 5, Minor: 12}
	if !k.AtLeast(5, 12) || !k.AtLeast(4, 20) || k.AtLeast(5, 13) || k.AtLeast(6, 0) {
		t.Error("5.12 compares wrongly")
	}
}

func TestParseCPUs(t *testing.T) {
	f := func(list string, want ...int) {
		t.Helper()
		got, err := ParseCPUs(list)
		if !slices.Equal(got, want) || (err == nil) != (len(want) > 0) {
			t.Errorf("%q is %v, %v; want %v", list, got, err, want)
		}
	}
	f("0", 0)
	f("0-3,8", 0, 1, 2, 3, 8)
	f("1,3-4", 1, 3, 4)
	f("")
	f("a")
	f("3-1")
	f("1,1")
	f("2,0-1")
	f("0-")
	f("-1")
	f("0-70000")
}

func FuzzParseCPUs(f *testing.F) {
	f.Add("0-3,8")
	f.Add("")
	f.Fuzz(func(t *testing.T, list string) {
		cpus, err := ParseCPUs(list)
		if err == nil && (len(cpus) == 0 || cpus[0] < 0) {
			t.Errorf("%q is %v without an error", list, cpus)
		}
		for i := 1; i < len(cpus); i++ {
			if cpus[i] <= cpus[i-1] {
				t.Errorf("%q is %v: not ascending", list, cpus)
			}
		}
	})
}

func TestOnlineIsWhatNprocSays(t *testing.T) {
	online := Online()
	if last := online[len(online)-1]; last >= Possible() {
		t.Errorf("CPU %d is online, but only %d possible", last, Possible())
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(stat), "\ncpu"); lines != len(online) {
		t.Errorf("%d CPUs in /proc/stat, online are %v", lines, online)
	}
}

func TestParseHierarchy(t *testing.T) {
	f := func(mounts string, want Hierarchy, text string) {
		t.Helper()
		if got := parseHierarchy(mounts); !reflect.DeepEqual(got, want) || got.String() != text {
			t.Errorf("%+v, %s; want %+v, %s", got, got, want, text)
		}
	}
	const v2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"
	const unified = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
	f("", Hierarchy{}, "none mounted")
	f("proc /proc proc rw 0 0\n"+v2+"cgroup2 /var/lib/c cgroup2 rw 0 0\n",
		Hierarchy{Mount: "/sys/fs/cgroup", Version: 2, CPUAcct: "/sys/fs/cgroup", Unified: "/sys/fs/cgroup"}, "v2 at /sys/fs/cgroup")
	f("cgroup /a\\040b cgroup rw,cpu,cpuacct 0 0\n",
		Hierarchy{Mount: "/a b", Version: 1, CPUAcct: "/a b", V1Mounts: map[string]string{"rw": "/a b", "cpu": "/a b", "cpuacct": "/a b"}}, "v1 cpu controller at /a b")
	f("cgroup /c/cpu cgroup rw,cpu 0 0\ncgroup /c/cpuacct cgroup rw,cpuacct 0 0\ncgroup /c/set cgroup rw,cpuset 0 0\n"+unified,
		Hierarchy{Mount: "/c/cpu", Version: 1, CPUAcct: "/c/cpuacct", Unified: "/sys/fs/cgroup/unified",
			V1Mounts: map[string]string{"rw": "/c/cpu", "cpu": "/c/cpu", "cpuacct": "/c/cpuacct", "cpuset": "/c/set"}},
		"hybrid: v1 cpu controller at /c/cpu, v2 at /sys/fs/cgroup/unified")
	f("cgroup /c/systemd cgroup rw,name=systemd 0 0\n"+unified,
		Hierarchy{Mount: "/sys/fs/cgroup/unified", Version: 2, CPUAcct: "/sys/fs/cgroup/unified", Unified: "/sys/fs/cgroup/unified"}, "v2 at /sys/fs/cgroup/unified")
}

func FuzzParseHierarchy(f *testing.F) {
	f.Add("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
	f.Add("cgroup /c cgroup rw,cpu 0 0")
	f.Fuzz(func(t *testing.T, mounts string) {
		if h := parseHierarchy(mounts); (h.Version == 0) != (h.Mount == "") {
			t.Errorf("%+v", h)
		}
	})
}

func TestUnitAndContainer(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	f := func(path, unit, container string) {
		t.Helper()
		g := Cgroup{Path: strings.ReplaceAll(path, "ID", id)}
		container = strings.ReplaceAll(container, "ID", id)
		unit = strings.ReplaceAll(unit, "ID", id)
		if g.Unit() != unit || g.Container() != container {
			t.Errorf("%s: unit %q, container %q; want %q, %q", g.Path, g.Unit(), g.Container(), unit, container)
		}
	}
	f("/", "", "")
	f("/a/b", "", "")
	f("/system.slice", "system.slice", "")
	f("/system.slice/ssh.service", "ssh.service", "")
	f("/system.slice/_cpu.service", "cpu.service", "")
	f("/system.slice/ssh.service/threads", "ssh.service", "")
	f("/user.slice/user-1000.slice/user@1000.service/app.slice/editor.service", "editor.service", "")
	f("/system.slice/docker-ID.scope", "docker-ID.scope", "ID")
	f("/docker/ID", "", "ID")
	f("/docker/ID/inner", "", "ID")
	f("/kubepods/burstable/pod12-34/ID", "", "ID")
	f("/kubepods.slice/kubepods-pod12.slice/cri-containerd-ID.scope", "cri-containerd-ID.scope", "ID")
	f("/kubepods.slice/kubepods-pod12.slice/crio-ID.scope/container", "crio-ID.scope", "ID")
	f("/kubepods.slice/crio-conmon-ID.scope", "crio-conmon-ID.scope", "")
	f("/kubepods-pod12.slice:cri-containerd:ID", "", "ID")
	f("/machine.slice/libpod-ID.scope/container", "libpod-ID.scope", "ID")
	f("/machine.slice/libpod-conmon-ID.scope", "libpod-conmon-ID.scope", "")
	f("/lxc/web", "", "web")
	f("/lxc/web/system.slice/ssh.service", "ssh.service", "web")
	f("/lxc.payload.web/init.scope", "init.scope", "web")
	f("/lxc.monitor.web", "", "")
	f("/docker/0123", "", "")
}

func FuzzCutEvent(f *testing.F) {
	whole := make([]byte, unix.SizeofInotifyEvent+16)
	binary.NativeEndian.PutUint32(whole[12:], 16)
	copy(whole[unix.SizeofInotifyEvent:], "name")
	f.Add(whole)
	f.Add(whole[:20])
	f.Fuzz(func(t *testing.T, b []byte) {
		for e, rest, ok := cutEvent(b); ok; e, rest, ok = cutEvent(rest) {
			if len(rest)+unix.SizeofInotifyEvent+len(e.name) > len(b) || strings.Contains(e.name, "\x00") {
				t.Fatalf("event %+v and %d bytes out of %d", e, len(rest), len(b))
			}
		}
	})
}

func BenchmarkMono(b *testing.B) {
	for b.Loop() {
		Mono()
	}
}
