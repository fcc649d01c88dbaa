// SPDX-License-Identifier: Apache-2.0

package host

import (
	"path/filepath"
	"strconv"
	"strings"
)

// Block is a disk or what is made of disks; partitions are not listed.
type Block struct {
	Name          string   `json:"name"`
	Model         string   `json:"model,omitempty"`
	Driver        string   `json:"driver,omitempty"` // of the device: nvme, sd, virtio_blk
	Mapped        string   `json:"mapped,omitempty"` // name in the device mapper
	Bytes         uint64   `json:"bytes"`
	Rotational    bool     `json:"rotational"`
	LogicalBlock  int      `json:"logical_block"`       // bytes
	PhysicalBlock int      `json:"physical_block"`      // bytes
	Scheduler     string   `json:"scheduler,omitempty"` // the one in use: none, mq-deadline
	Queues        int      `json:"queues"`              // hardware queues
	Node          int      `json:"node"`                // NUMA node; -1: unknown
	Below         []string `json:"below,omitempty"`     // what it is made of
}

// Interface is a network interface.
type Interface struct {
	Name   string `json:"name"`
	Kind   string `json:"kind,omitempty"` // of a virtual one: bridge, bond, vlan, as DEVTYPE has it
	Driver string `json:"driver,omitempty"`
	PCI    string `json:"pci,omitempty"` // address of the device
	State  string `json:"state"`         // operstate (RFC 2863): up, down, unknown
	// Speed is in bits a second; 0: there is no link, or it has none.
	Speed    uint64 `json:"speed"`
	Duplex   string `json:"duplex,omitempty"`
	MTU      int    `json:"mtu"`
	Receive  int    `json:"receive_queues"`
	Transmit int    `json:"transmit_queues"`
	Node     int    `json:"node"` // NUMA node; -1: unknown
}

// GPU is a display controller or processing accelerator on PCI.
type GPU struct {
	PCI    string `json:"pci"`    // address: 0000:65:00.0
	Vendor string `json:"vendor"` // nvidia, amd, intel, or the number: 0x1b36
	Device string `json:"device"` // the number: 0x2335
	Driver string `json:"driver,omitempty"`
	Node   int    `json:"node"` // NUMA node; -1: unknown
}

// blocks lists /sys/block (Documentation/ABI/stable/sysfs-block). Loop devices
// and RAM disks without anything in them are left out.
func (m machine) blocks() []Block {
	var found []Block
	for _, name := range m.list("sys/block") {
		at := filepath.Join("sys/block", name)
		sectors, err := strconv.ParseUint(m.text(at, "size"), 10, 54)
		if err != nil || sectors == 0 {
			continue
		}
		queue := filepath.Join(at, "queue")
		b := Block{
			Name: name, Bytes: sectors * 512, // whatever the blocks' size
			Model:  m.text(at, "device/model"),
			Driver: m.target(at, "device/driver"),
			Mapped: m.text(at, "dm/name"), Rotational: m.text(queue, "rotational") == "1",
			LogicalBlock: m.number(0, queue, "logical_block_size"), PhysicalBlock: m.number(0, queue, "physical_block_size"),
			Queues: len(m.numbered(filepath.Join(at, "mq"), "")), Node: m.node(at, "device"), Below: m.list(filepath.Join(at, "slaves")),
		}
		if b.Driver == "" { // a namespace of NVMe is a device of its controller
			b.Driver = m.target(at, "device/device/driver")
		}
		_, rest, ok := strings.Cut(m.text(queue, "scheduler"), "[")
		if b.Scheduler, _, _ = strings.Cut(rest, "]"); !ok {
			b.Scheduler = m.text(queue, "scheduler")
		}
		found = append(found, b)
	}
	return found
}

// node is the NUMA node of a device, or of the one that it is behind.
func (m machine) node(elem ...string) int {
	at := filepath.Join(elem...)
	for _, file := range []string{"numa_node", "device/numa_node"} {
		if n := m.number(-1, at, file); n >= 0 {
			return n
		}
	}
	return -1
}

// interfaces lists /sys/class/net (Documentation/ABI/testing/sysfs-class-net).
func (m machine) interfaces() []Interface {
	var found []Interface
	for _, name := range m.list("sys/class/net") {
		at := filepath.Join("sys/class/net", name)
		if m.text(at, "ifindex") == "" { // bonding_masters is a file
			continue
		}
		i := Interface{
			Name: name, Driver: m.target(at, "device/driver"), State: m.text(at, "operstate"),
			Duplex: m.text(at, "duplex"), MTU: m.number(0, at, "mtu"), Node: m.node(at, "device"),
			Receive: countPrefix(m.list(filepath.Join(at, "queues")), "rx-"), Transmit: countPrefix(m.list(filepath.Join(at, "queues")), "tx-"),
		}
		for line := range strings.Lines(m.text(at, "uevent")) {
			if kind, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVTYPE="); ok {
				i.Kind = kind
			}
		}
		// Mbit/s; -1 without a link.
		i.Speed = uint64(max(0, m.number(0, at, "speed"))) * 1e6
		if device := m.target(at, "device"); strings.Count(device, ":") == 2 {
			i.PCI = device
		}
		found = append(found, i)
	}
	return found
}

func countPrefix(names []string, prefix string) (n int) {
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			n++
		}
	}
	return n
}

// gpuVendors are PCI vendors of GPUs by number.
var gpuVendors = map[string]string{"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}

// gpus lists the PCI devices of class 0x03 (display) and 0x12 (accelerators).
func (m machine) gpus() []GPU {
	const dir = "sys/bus/pci/devices"
	var found []GPU
	for _, address := range m.list(dir) {
		at := filepath.Join(dir, address)
		class := m.text(at, "class")
		if !strings.HasPrefix(class, "0x03") && !strings.HasPrefix(class, "0x12") {
			continue
		}
		g := GPU{PCI: address, Vendor: m.text(at, "vendor"), Device: m.text(at, "device"), Driver: m.target(at, "driver"), Node: m.node(at)}
		if name, ok := gpuVendors[g.Vendor]; ok {
			g.Vendor = name
		}
		found = append(found, g)
	}
	return found
}
