// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// server is a machine of two packages with two threads a core, a disk of each
// kind, and a GPU.
func server(t *testing.T) machine {
	with := files{
		"etc/os-release": "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n", "proc/sys/kernel/hostname": "web1\n", "proc/sys/kernel/osrelease": "6.1.0\n",
		"proc/cmdline":                  "quiet mitigations=auto isolcpus=2 -- --token=secret\n",
		"proc/cpuinfo":                  "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon: 8th\nmicrocode\t: 0x2b\n",
		"proc/meminfo":                  "MemTotal:       24684084 kB\nMemFree: 1 kB\nSwapTotal:       1024 kB\n",
		"sys/devices/system/cpu/online": "0-3\n", "sys/devices/system/cpu/vulnerabilities/meltdown": "Mitigation: PTI\n",
		"sys/devices/system/cpu/cpuidle/current_driver":        "intel_idle\n",
		"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n", "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver": "intel_pstate\n",
		"sys/class/dmi/id/sys_vendor": "ACME\n", "sys/class/dmi/id/product_name": "R1\n", "sys/class/dmi/id/bios_version": "2.3\n", "sys/class/dmi/id/bios_date": "01/02/2025\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "17\n", "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
		"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
		"sys/devices/system/node/node0/cpulist":      "0-1\n", "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:       100 kB\n", "sys/devices/system/node/node0/distance": "10 21\n",
		"sys/devices/system/node/node1/cpulist": "2-3\n", "sys/devices/system/node/node1/meminfo": "Node 1 MemTotal:       200 kB\n", "sys/devices/system/node/node1/distance": "21 10\n",
		"sys/block/sda/size": "2000\n", "sys/block/sda/queue/rotational": "1\n", "sys/block/sda/queue/logical_block_size": "512\n", "sys/block/sda/queue/physical_block_size": "4096\n",
		"sys/block/sda/device/model": "Big Drive\n", "sys/block/sda/queue/scheduler": "none [mq-deadline] kyber\n", "sys/block/sda/mq/0/cpu_list": "0\n", "sys/block/sda/mq/1/cpu_list": "1\n",
		"sys/block/dm-0/size": "1000\n", "sys/block/dm-0/dm/name": "vg-root\n", "sys/block/dm-0/slaves/sda/x": "", "sys/block/dm-0/queue/scheduler": "none\n",
		"sys/block/loop0/size": "0\n", "sys/class/net/bonding_masters": "\n",
		"sys/class/net/eth0/ifindex": "2\n", "sys/class/net/eth0/operstate": "up\n", "sys/class/net/eth0/speed": "25000\n", "sys/class/net/eth0/duplex": "full\n", "sys/class/net/eth0/mtu": "9000\n",
		"sys/class/net/eth0/queues/rx-0/x": "", "sys/class/net/eth0/queues/rx-1/x": "", "sys/class/net/eth0/queues/tx-0/x": "",
		"sys/class/net/br0/ifindex": "3\n", "sys/class/net/br0/uevent": "DEVTYPE=bridge\nINTERFACE=br0\n", "sys/class/net/br0/speed": "-1\n", "sys/class/net/br0/mtu": "1500\n", "sys/class/net/br0/operstate": "down\n",
		"sys/devices/pci/0000:03:00.0/numa_node": "1\n", "sys/bus/pci/drivers/mlx5_core/x": "",
		"sys/bus/pci/devices/0000:65:00.0/class": "0x030200\n", "sys/bus/pci/devices/0000:65:00.0/vendor": "0x10de\n", "sys/bus/pci/devices/0000:65:00.0/device": "0x2335\n", "sys/bus/pci/devices/0000:65:00.0/numa_node": "0\n",
		"sys/bus/pci/devices/0000:00:02.0/class": "0x020000\n",
	}
	for cpu, at := range []struct{ core, pkg, shared string }{{"0", "0", "0-1"}, {"0", "0", "0-1"}, {"0", "1", "2-3"}, {"0", "1", "2-3"}} {
		dir := "sys/devices/system/cpu/cpu" + string(rune('0'+cpu))
		with[dir+"/topology/core_id"], with[dir+"/topology/die_id"], with[dir+"/topology/physical_package_id"] = at.core, "0", at.pkg
		with[dir+"/cache/index0/level"], with[dir+"/cache/index0/type"], with[dir+"/cache/index0/size"] = "1", "Data", "48K"
		with[dir+"/cache/index0/shared_cpu_list"], with[dir+"/cache/index0/coherency_line_size"] = at.shared, "64"
	}
	m := made(t, with)
	link := func(to, from string) {
		if err := os.Symlink(filepath.Join(string(m), to), filepath.Join(string(m), from)); err != nil {
			t.Fatal(err)
		}
	}
	link("sys/devices/pci/0000:03:00.0", "sys/class/net/eth0/device")
	link("sys/bus/pci/drivers/mlx5_core", "sys/devices/pci/0000:03:00.0/driver")
	return m
}

func TestInventory(t *testing.T) {
	want := Inventory{
		Hostname: "web1", OS: "Debian GNU/Linux 12", Kernel: "6.1.0", Arch: runtime.GOARCH, Boot: []string{"quiet", "mitigations=auto", "isolcpus=2"},
		Mitigations: map[string]string{"meltdown": "Mitigation: PTI"},
		Machine:     MachineModel{"ACME", "R1", "2.3 01/02/2025"},
		CPU: CPUs{Vendor: "GenuineIntel", Model: "Xeon: 8th", Microcode: "0x2b", Sockets: 2, Cores: 2, Threads: 4, SMT: true,
			Driver: "intel_pstate", Governor: "powersave", Idle: "intel_idle",
			Caches:   []Cache{{1, "Data", 48 << 10, 64, []string{"0-1", "2-3"}}},
			Topology: []Thread{{0, 0, 0, 0, 0}, {1, 0, 0, 0, 0}, {2, 0, 0, 1, 1}, {3, 0, 0, 1, 1}}},
		Memory: Memory{24684084 << 10, 1024 << 10, map[uint64]uint64{2 << 20: 17}, "madvise"},
		Nodes:  []Node{{0, "0-1", 100 << 10, []int{10, 21}}, {1, "2-3", 200 << 10, []int{21, 10}}},
		Blocks: []Block{
			{Name: "dm-0", Mapped: "vg-root", Bytes: 512_000, Scheduler: "none", Node: -1, Below: []string{"sda"}},
			{Name: "sda", Model: "Big Drive", Bytes: 1_024_000, Rotational: true, LogicalBlock: 512, PhysicalBlock: 4096, Scheduler: "mq-deadline", Queues: 2, Node: -1},
		},
		Interfaces: []Interface{
			{Name: "br0", Kind: "bridge", State: "down", MTU: 1500, Node: -1},
			{Name: "eth0", Driver: "mlx5_core", PCI: "0000:03:00.0", State: "up", Speed: 25e9, Duplex: "full", MTU: 9000, Receive: 2, Transmit: 1, Node: 1},
		},
		GPUs: []GPU{{"0000:65:00.0", "nvidia", "0x2335", "", 0}},
	}
	if d := cmp.Diff(want, ReadInventory(string(server(t)))); d != "" {
		t.Error(d)
	}
}

// TestInventoryOfNothing: what cannot be read is empty, and is no failure.
func TestInventoryOfNothing(t *testing.T) {
	i := ReadInventory(t.TempDir())
	if i.Hostname != "" || i.CPU.Threads != 0 || i.Memory.Bytes != 0 || i.Blocks != nil || i.GPUs != nil {
		t.Errorf("%+v", i)
	}
}

// TestInventoryOfThisMachine compares with what the kernel says by other ways.
func TestInventoryOfThisMachine(t *testing.T) {
	// Other tests make interfaces and loop devices meanwhile: what is there
	// before and after is compared.
	before, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	i := ReadInventory("/")
	var uts unix.Utsname
	var info unix.Sysinfo_t
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	if i.Kernel != unix.ByteSliceToString(uts.Release[:]) || i.Hostname != unix.ByteSliceToString(uts.Nodename[:]) {
		t.Errorf("%s on %s", i.Kernel, i.Hostname)
	}
	if total := uint64(info.Totalram) * uint64(info.Unit); i.Memory.Bytes != total {
		t.Errorf("%d bytes of memory; sysinfo(2) says %d", i.Memory.Bytes, total)
	}
	if i.CPU.Threads != len(Online()) || i.CPU.Cores > i.CPU.Threads || i.CPU.Sockets < 1 {
		t.Errorf("CPUs %+v, and %d are online", i.CPU, len(Online()))
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if !slices.ContainsFunc(before, func(b net.Interface) bool { return b.Name == l.Name && b.MTU == l.MTU }) {
			continue
		}
		at := slices.IndexFunc(i.Interfaces, func(n Interface) bool { return n.Name == l.Name })
		if at < 0 || i.Interfaces[at].MTU != l.MTU {
			t.Errorf("%s with an MTU of %d is not in %+v", l.Name, l.MTU, i.Interfaces)
		}
	}
	for _, b := range i.Blocks {
		if strings.HasPrefix(b.Name, "loop") {
			continue
		}
		if fd, err := unix.Open("/dev/"+b.Name, unix.O_RDONLY, 0); err == nil {
			size, err := unix.Seek(fd, 0, unix.SEEK_END)
			if unix.Close(fd); err == nil && uint64(size) != b.Bytes {
				t.Errorf("%s has %d bytes, the inventory says %d", b.Name, size, b.Bytes)
			}
		}
	}
	text, err := json.Marshal(i)
	if err != nil || !strings.Contains(string(text), `"threads":`) {
		t.Errorf("%s, %v", text, err)
	}
	t.Logf("%s", text)
}
