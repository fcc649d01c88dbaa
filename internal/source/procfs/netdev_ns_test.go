// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// threadNet is /proc/net of the network namespace of the calling thread.
const threadNet = "/proc/thread-self/net"

// The first thread is that of /proc/net: no test may have it and change its
// namespaces, so the main goroutine keeps it.
func init() { runtime.LockOSThread() }

// newNamespace puts the test alone into a network namespace, where nothing
// happens but what it does, with loopback up and without IPv6's own messages.
// It needs root. class is /sys/class/net there.
func newNamespace(t testing.TB) (class string) {
	t.Helper()
	// The thread is never unlocked, so it ends with the test's goroutine,
	// and the namespaces with it.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		t.Fatalf("unshare: %v; this test needs root", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil && !errors.Is(err, unix.EINVAL) {
		t.Fatal(err)
	}
	sys := t.TempDir()
	if err := unix.Mount("sysfs", sys, "sysfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(sys, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0o644)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	setUp(t, "lo")
	return sys + "/class/net"
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func setUp(t testing.TB, name string) {
	t.Helper()
	fd := socket(t, unix.AF_INET, unix.SOCK_DGRAM, 0)
	request, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		t.Fatal(err)
	}
}

func socket(t testing.TB, family, kind, protocol int) int {
	t.Helper()
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// attribute is a struct rtattr.
func attribute(kind uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, -len(b)&3)...)
}

// route asks rtnetlink for a change of the interface of an index, or of a new
// one.
func route(t testing.TB, kind, flags uint16, index int32, attributes ...byte) error {
	t.Helper()
	fd := socket(t, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	b := make([]byte, unix.NLMSG_HDRLEN+unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b, uint32(len(b)+len(attributes)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
	binary.NativeEndian.PutUint32(b[unix.NLMSG_HDRLEN+4:], uint32(index))
	if _, err := unix.Write(fd, append(b, attributes...)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4096)
	n, err := unix.Read(fd, answer)
	if err != nil || n < unix.NLMSG_HDRLEN+4 {
		t.Fatalf("read netlink: %d bytes, %v", n, err)
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// newVeth makes a pair of interfaces, and waits until both carry packets: the
// kernel gives them a queue when it notices the carrier (net/core/link_watch.c).
// class is what newNamespace gave.
func newVeth(t testing.TB, class, name, peer string) {
	t.Helper()
	const (
		infoKind, infoData = 1, 2 // IFLA_INFO_KIND, IFLA_INFO_DATA
		infoPeer           = 1    // VETH_INFO_PEER
	)
	other := append(make([]byte, unix.SizeofIfInfomsg), attribute(unix.IFLA_IFNAME, append([]byte(peer), 0)...)...)
	info := append(attribute(infoKind, []byte("veth")...), attribute(infoData, attribute(infoPeer, other...)...)...)
	request := append(attribute(unix.IFLA_IFNAME, append([]byte(name), 0)...), attribute(unix.IFLA_LINKINFO, info...)...)
	err := route(t, unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, 0, request...)
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("the kernel has no veth built in")
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []string{name, peer} {
		setUp(t, one)
	}
	for _, one := range []string{name, peer} {
		await(t, func() bool { return firstLine(class+"/"+one+"/operstate") == "up" })
	}
}

// await waits until something is so that nothing tells of.
func await(t testing.TB, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("what was waited for did not come within 10 s")
		}
	}
}

func removeInterface(t testing.TB, name string) {
	t.Helper()
	if err := route(t, unix.RTM_DELLINK, 0, int32(index(t, name))); err != nil {
		t.Fatal(err)
	}
}

func index(t testing.TB, name string) int {
	t.Helper()
	fd := socket(t, unix.AF_INET, unix.SOCK_DGRAM, 0)
	request, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); err != nil {
		t.Fatal(err)
	}
	return int(request.Uint32())
}

// opened is s, closed at the end of the test.
func opened[S source.Source](t testing.TB) func(s S, err error) S {
	return func(s S, err error) S {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
}

// says is what s says now, by name and label values.
func says(t testing.TB, s source.Source) map[string]uint64 {
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

// expect compares what there should be with what there is; want of -1 is that
// there is no such series.
func expect(t testing.TB, got map[string]uint64, want map[string]int64) {
	t.Helper()
	for key, want := range want {
		if value, ok := got[key]; !ok && want >= 0 || ok && int64(value) != want {
			t.Errorf("%s = %d, %v; want %d", key, value, ok, want)
		}
	}
}

// grown is by how much the values of b are above those of a.
func grown(a, b map[string]uint64) map[string]uint64 {
	d := map[string]uint64{}
	for key, value := range b {
		d[key] = value - a[key]
	}
	return d
}

// allocates fails if a read of s does.
func allocates(t *testing.T, s source.Source) {
	t.Helper()
	var f metric.Frame
	read := func() {
		if err := s.Read(&f); err != nil {
			t.Fatal(err)
		}
	}
	read()
	read()
	if n := testing.AllocsPerRun(100, read); n != 0 {
		t.Errorf("%v allocations in a read of %s", n, s.Name())
	}
}

func benchmark(b *testing.B, s source.Source) {
	b.Helper()
	var f metric.Frame
	for b.Loop() {
		if err := s.Read(&f); err != nil {
			b.Fatal(err)
		}
	}
}
