// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// folder writes files below a temporary folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestInterfaceKind(t *testing.T) {
	f := func(want string, files map[string]string) {
		t.Helper()
		if got := InterfaceKind(folder(t, files)); got != want {
			t.Errorf("%v: %s, want %s", files, got, want)
		}
	}
	f("loopback", map[string]string{"type": "772\n", "ifindex": "1\n", "iflink": "1\n"})
	f("physical", map[string]string{"type": "1\n", "uevent": "INTERFACE=eth0\nIFINDEX=2\n", "device/vendor": "0x1af4\n", "ifindex": "2", "iflink": "2"})
	f("bridge", map[string]string{"type": "1\n", "uevent": "DEVTYPE=bridge\nINTERFACE=br0\nIFINDEX=3\n"})
	f("tun", map[string]string{"type": "65534\n", "tun_flags": "0x1\n", "ifindex": "4\n", "iflink": "4\n"})
	f("veth", map[string]string{"type": "1\n", "uevent": "INTERFACE=v0\n", "ifindex": "5\n", "iflink": "6\n"})
	f("virtual", map[string]string{"type": "1\n", "ifindex": "7\n", "iflink": "2\n", "lower_eth0/x": ""}) // macvlan
	f("virtual", map[string]string{"type": "1\n", "ifindex": "8\n", "iflink": "8\n"})                     // dummy
}

func TestBlockDevicesHaveNamesAndNumbers(t *testing.T) {
	got, err := listBlock(folder(t, map[string]string{"sda/dev": "8:0\n", "nvme0n1/dev": "259:5\n",
		"dm-0/dev": "254:0\n", "dm-0/dm/name": "vg-root\n", "gone/other": ""}))
	want := []Device{{ID: 254 << 20, Name: "vg-root"}, {ID: 259<<20 | 5, Name: "nvme0n1"}, {ID: 8 << 20, Name: "sda"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

func TestLoopbackIsAnInterfaceOfThisNamespace(t *testing.T) {
	var there []Device
	d, err := TrackInterfaces(nil, func(born, _ []Device) { there = append(there, born...) })
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var namespace unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &namespace); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(there, Device{ID: namespace.Ino<<32 | 1, Name: "lo", Kind: "loopback"}) {
		t.Errorf("lo is not among %v", there)
	}
}

// TestAnInterfaceComesAndGoes makes a tun interface, which needs no tool.
func TestAnInterfaceComesAndGoes(t *testing.T) {
	type change struct{ born, died []Device }
	changes := make(chan change, 100)
	d, err := TrackInterfaces(nil, func(born, died []Device) { changes <- change{born, died} })
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	wait := func(what string, in func(change) []Device) Device {
		t.Helper()
		for timeout := time.After(10 * time.Second); ; {
			select {
			case c := <-changes:
				for _, e := range in(c) {
					if e.Name == "rztest0" {
						return e
					}
				}
			case <-timeout:
				t.Fatalf("rztest0 was not %s", what)
			}
		}
	}
	tun := makeTun(t, "rztest0")
	if e := wait("born", func(c change) []Device { return c.born }); e.Kind != "tun" || e.ID>>32 == 0 {
		t.Errorf("born as %+v", e)
	}
	if err := unix.Close(tun); err != nil {
		t.Fatal(err)
	}
	wait("dead", func(c change) []Device { return c.died })
}

// makeTun makes an interface that lives as long as the descriptor. Linux since
// 2.4 has tun, but as a module a test machine may lack it: then a dummy
// interface would do as little.
func makeTun(t *testing.T, name string) int {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		t.Fatal(err)
	}
	return fd
}
