// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Inventory is the hardware of a machine and what the kernel was told about
// it, as far as /proc and /sys say. What could not be found out is empty or
// absent. It holds no serial numbers and no network addresses.
type Inventory struct {
	Hostname string `json:"hostname,omitempty"` // /proc/sys/kernel/hostname
	OS       string `json:"os,omitempty"`       // PRETTY_NAME of os-release(5)
	Kernel   string `json:"kernel,omitempty"`   // release, as uname -r has it
	Arch     string `json:"arch"`               // of the agent: amd64 or arm64
	// Boot are the parameters the kernel was started with. Those after "--"
	// are for the first process, and may be secret.
	Boot []string `json:"boot,omitempty"`
	// Mitigations are what the kernel does about each known vulnerability of
	// its CPUs (Documentation/admin-guide/hw-vuln).
	Mitigations map[string]string `json:"mitigations,omitempty"`
	Machine     MachineModel      `json:"machine"`
	CPU         CPUs              `json:"cpu"`
	Memory      Memory            `json:"memory"`
	Nodes       []Node            `json:"nodes,omitempty"`
	Blocks      []Block           `json:"blocks,omitempty"`
	Interfaces  []Interface       `json:"interfaces,omitempty"`
	GPUs        []GPU             `json:"gpus,omitempty"`
}

// MachineModel is what the firmware says of the machine (SMBIOS, or the model
// of a device tree).
type MachineModel struct {
	Vendor  string `json:"vendor,omitempty"`
	Product string `json:"product,omitempty"`
	BIOS    string `json:"bios,omitempty"` // version and date
}

// CPUs are the processors that are online.
type CPUs struct {
	Vendor    string `json:"vendor,omitempty"` // GenuineIntel; of ARM the implementer's number: 0x41
	Model     string `json:"model,omitempty"`  // model name; of ARM the part's number: 0xd0c
	Microcode string `json:"microcode,omitempty"`
	Sockets   int    `json:"sockets"` // packages
	Cores     int    `json:"cores"`   // in all packages
	Threads   int    `json:"threads"` // that the scheduler sees
	SMT       bool   `json:"smt"`     // a core has more than one thread
	// Driver and Governor are those of cpufreq, Idle the driver of cpuidle.
	Driver   string   `json:"frequency_driver,omitempty"`
	Governor string   `json:"frequency_governor,omitempty"`
	Idle     string   `json:"idle_driver,omitempty"`
	Caches   []Cache  `json:"caches,omitempty"`
	Topology []Thread `json:"topology,omitempty"` // by CPU
}

// Cache is a kind of cache and how many there are of it.
type Cache struct {
	Level int    `json:"level"`
	Type  string `json:"type"`  // Data, Instruction or Unified
	Bytes uint64 `json:"bytes"` // of each
	Line  uint64 `json:"line"`  // bytes
	// Shared has for each the CPUs that share it, as cpuset(7) lists them.
	Shared []string `json:"shared"`
}

// Thread is where a CPU is. Numbers are those of the kernel; -1 is unknown.
type Thread struct {
	CPU     int `json:"cpu"`
	Core    int `json:"core"`
	Die     int `json:"die"`
	Package int `json:"package"`
	Node    int `json:"node"`
}

// Memory is the main memory.
type Memory struct {
	Bytes uint64 `json:"bytes"` // usable: MemTotal of /proc/meminfo
	Swap  uint64 `json:"swap"`
	// HugePages are how many are set aside, by size in bytes.
	HugePages map[uint64]uint64 `json:"huge_pages,omitempty"`
	// Transparent is the mode of transparent huge pages: always, madvise or
	// never.
	Transparent string `json:"transparent_huge_pages,omitempty"`
}

// Node is a NUMA node.
type Node struct {
	Node     int    `json:"node"`
	CPUs     string `json:"cpus"` // as cpuset(7) lists them; none: a node of memory alone
	Bytes    uint64 `json:"bytes"`
	Distance []int  `json:"distance,omitempty"` // to each node; 10 is its own
}

// ReadInventory reads the inventory of the machine whose /proc, /sys and /etc
// are below root: "/". It asks devices for nothing that can take long.
func ReadInventory(root string) Inventory {
	m := machine(root)
	i := Inventory{
		Hostname: m.text("proc/sys/kernel/hostname"), OS: m.distribution(), Kernel: m.text("proc/sys/kernel/osrelease"), Arch: runtime.GOARCH,
		Boot: m.parameters(), Mitigations: m.mitigations(),
		Machine: MachineModel{
			Vendor:  m.text("sys/class/dmi/id/sys_vendor"),
			Product: m.firstOf("sys/class/dmi/id/product_name", "proc/device-tree/model"),
			BIOS:    strings.TrimSpace(m.text("sys/class/dmi/id/bios_version") + " " + m.text("sys/class/dmi/id/bios_date")),
		},
		Memory: m.memory(), Nodes: m.nodes(), Blocks: m.blocks(), Interfaces: m.interfaces(), GPUs: m.gpus(),
	}
	i.CPU = m.processors(i.Nodes)
	return i
}

// text is the content of a small file, or "".
func (m machine) text(elem ...string) string {
	text, err := m.read(filepath.Join(elem...))
	if err != nil {
		return ""
	}
	return text
}

// number is the number in a file, or otherwise.
func (m machine) number(otherwise int, elem ...string) int {
	n, err := strconv.Atoi(m.text(elem...))
	if err != nil {
		return otherwise
	}
	return n
}

// list is the names in a folder, sorted; none where it cannot be read.
func (m machine) list(dir string) []string {
	entries, err := os.ReadDir(filepath.Join(string(m), dir))
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// numbered is the numbers of the entries of a folder that are prefix and a
// number, ascending.
func (m machine) numbered(dir, prefix string) []int {
	var numbers []int
	for _, name := range m.list(dir) {
		rest, ok := strings.CutPrefix(name, prefix)
		if n, err := strconv.ParseUint(rest, 10, 31); ok && err == nil {
			numbers = append(numbers, int(n))
		}
	}
	slices.Sort(numbers)
	return numbers
}

// target is the last name of where a link points, or "".
func (m machine) target(elem ...string) string {
	to, err := os.Readlink(filepath.Join(string(m), filepath.Join(elem...)))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

func (m machine) distribution() string {
	for line := range strings.Lines(m.text("etc/os-release")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"'`)
		}
	}
	return ""
}

func (m machine) parameters() []string {
	all := strings.Fields(m.text("proc/cmdline"))
	if i := slices.Index(all, "--"); i >= 0 {
		all = all[:i]
	}
	return all
}

func (m machine) mitigations() map[string]string {
	const dir = "sys/devices/system/cpu/vulnerabilities"
	found := map[string]string{}
	for _, name := range m.list(dir) {
		if text := m.text(dir, name); text != "" {
			found[name] = text
		}
	}
	return found
}

// memory reads /proc/meminfo and the settings of huge pages
// (Documentation/admin-guide/mm/hugetlbpage.rst, transhuge.rst).
func (m machine) memory() Memory {
	is := Memory{HugePages: map[uint64]uint64{}}
	is.Bytes, is.Swap = meminfo(m.text("proc/meminfo"), "MemTotal"), meminfo(m.text("proc/meminfo"), "SwapTotal")
	const dir = "sys/kernel/mm/hugepages"
	for _, name := range m.list(dir) {
		size, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(name, "hugepages-"), "kB"), 10, 40)
		if n := m.number(0, dir, name, "nr_hugepages"); err == nil && n > 0 {
			is.HugePages[size<<10] = uint64(n)
		}
	}
	_, rest, _ := strings.Cut(m.text("sys/kernel/mm/transparent_hugepage/enabled"), "[")
	is.Transparent, _, _ = strings.Cut(rest, "]")
	return is
}

// meminfo is a field of /proc/meminfo, or of a node's, in bytes.
func meminfo(text, field string) uint64 {
	for line := range strings.Lines(text) {
		_, value, ok := strings.Cut(line, field+":")
		fields := strings.Fields(value)
		if !ok || len(fields) == 0 {
			continue
		}
		if n, err := strconv.ParseUint(fields[0], 10, 50); err == nil {
			return n << 10
		}
	}
	return 0
}

func (m machine) nodes() []Node {
	const dir = "sys/devices/system/node"
	var found []Node
	for _, n := range m.numbered(dir, "node") {
		at := filepath.Join(dir, "node"+strconv.Itoa(n))
		node := Node{Node: n, CPUs: m.text(at, "cpulist"), Bytes: meminfo(m.text(at, "meminfo"), "MemTotal")}
		for _, d := range strings.Fields(m.text(at, "distance")) {
			if distance, err := strconv.Atoi(d); err == nil {
				node.Distance = append(node.Distance, distance)
			}
		}
		found = append(found, node)
	}
	return found
}
