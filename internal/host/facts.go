// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Fact is one thing that is known of the machine, in words. What could not be
// found out begins with "unknown", which is neither yes nor no.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Facts are what decides which probes can run.
type Facts []Fact

// Lines are the facts in the order for people.
func (f Facts) Lines() []Fact { return f }

// Examine finds the facts out.
func Examine() Facts {
	m := machine("/")
	return Facts{
		{"kernel", kernel()},
		{"virtual machine", m.virtual()},
		{"CPUs", m.cpus()},
		{"BTF of the kernel", m.presence("sys/kernel/btf/vmlinux", "yes",
			"no: build with CONFIG_DEBUG_INFO_BTF, or name a file as general.btf_path")},
		{"BPF compiler", m.sysctl("net/core/bpf_jit_enable", map[string]string{
			"0": "off, programs are interpreted: set net.core.bpf_jit_enable=1", "1": "on", "2": "on"})},
		{"BPF statistics", m.sysctl("kernel/bpf_stats_enabled", map[string]string{
			"0": "off", "1": "on: each run of a program costs some 20 ns more"})},
		{"unprivileged BPF", m.sysctl("kernel/unprivileged_bpf_disabled", map[string]string{
			"0": "allowed", "1": "forbidden", "2": "forbidden"})},
		{"kprobes", m.presence("sys/bus/event_source/devices/kprobe", "yes", "no: built without CONFIG_KPROBE_EVENTS")},
		{"lockdown", m.lockdown()},
		{"tracefs", m.mounted("tracefs", "not mounted; it is mounted when a probe needs it")},
		{"BPF file system", m.mounted("bpf", "not mounted; nothing needs it")},
		{"hardware counters", hardwareCounters()},
		{"capabilities", m.capabilities()},
		{"locked memory", lockedMemory()},
	}
}

func unknown(err error) string { return "unknown: " + err.Error() }

func kernel() string {
	k, err := RunningKernel()
	if err != nil {
		return unknown(err)
	}
	return k.Release + " " + runtime.GOARCH
}

// hardwareCounters asks for a counter of CPU cycles of this thread in user mode
// (perf_event_open(2)), which takes no privilege where it is allowed at all.
func hardwareCounters() string {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_CPU_CYCLES,
		Size: unix.PERF_ATTR_SIZE_VER0, Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	switch {
	case err == nil:
		unix.Close(fd)
		return "yes"
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EOPNOTSUPP):
		return "no: most virtual machines have none"
	case errors.Is(err, unix.ENOSYS):
		return "no: built without CONFIG_PERF_EVENTS"
	}
	return unknown(fmt.Errorf("perf_event_open: %w", err))
}

func lockedMemory() string {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return unknown(err)
	}
	if r.Cur == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return fmt.Sprintf("%d KiB; kernels before 5.11 count BPF maps against it", r.Cur>>10)
}

// machine is where /proc and /sys are: "/".
type machine string

func (m machine) read(path string) (string, error) {
	text, err := os.ReadFile(filepath.Join(string(m), path))
	return strings.TrimSpace(string(text)), err
}

// presence is yes or no by whether a file is there; one that may not be looked
// at is neither.
func (m machine) presence(path, yes, no string) string {
	_, err := os.Stat(filepath.Join(string(m), path))
	switch {
	case err == nil:
		return yes
	case errors.Is(err, fs.ErrNotExist):
		return no
	}
	return unknown(err)
}

func (m machine) sysctl(name string, words map[string]string) string {
	value, err := m.read("proc/sys/" + name)
	if err != nil {
		return unknown(err)
	}
	if word, ok := words[value]; ok {
		return word
	}
	return value
}

func (m machine) mounted(kind, no string) string {
	text, err := m.read("proc/self/mounts")
	if err != nil {
		return unknown(err)
	}
	for mount := range parseMounts(text) {
		if mount.kind == kind {
			return "at " + mount.at
		}
	}
	return no
}

func (m machine) cpus() string {
	online, err := m.read("sys/devices/system/cpu/online")
	if err != nil {
		return unknown(err)
	}
	possible, err := m.read("sys/devices/system/cpu/possible")
	if err != nil {
		return unknown(err)
	}
	return fmt.Sprintf("%s online, %s possible", online, possible)
}

// lockdown is the mode between brackets (kernel_lockdown(7)).
func (m machine) lockdown() string {
	text, err := m.read("sys/kernel/security/lockdown")
	if errors.Is(err, fs.ErrNotExist) {
		return m.presence("sys/kernel/security/lsm", "none: built without it", "unknown: securityfs is not mounted")
	}
	if err != nil {
		return unknown(err)
	}
	_, rest, _ := strings.Cut(text, "[")
	mode, _, ok := strings.Cut(rest, "]")
	if !ok {
		return fmt.Sprintf("unknown: /sys/kernel/security/lockdown says %q", text)
	}
	return mode
}

// virtual is a hint: a machine need not tell.
func (m machine) virtual() string {
	info, err := m.read("proc/cpuinfo")
	if err != nil {
		return unknown(err)
	}
	product := m.firstOf("sys/class/dmi/id/product_name", "sys/hypervisor/type", "proc/device-tree/hypervisor/compatible")
	for line := range strings.Lines(info) {
		key, flags, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) == "flags" && strings.Contains(" "+strings.TrimSpace(flags)+" ", " hypervisor ") {
			return strings.TrimSpace("yes " + product)
		}
	}
	if product != "" {
		return "no sign of it: " + product
	}
	return "no sign of it"
}

// firstOf is the content of the first of the files that is there, or "".
func (m machine) firstOf(files ...string) string {
	for _, f := range files {
		if text, err := m.read(f); err == nil && text != "" {
			return strings.Trim(text, "\x00")
		}
	}
	return ""
}

// needed are the capabilities that matter here, by number
// (include/uapi/linux/capability.h).
var needed = []struct {
	name string
	bit  uint
}{
	{"CAP_BPF", unix.CAP_BPF}, {"CAP_PERFMON", unix.CAP_PERFMON}, {"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN},
	{"CAP_SYS_RESOURCE", unix.CAP_SYS_RESOURCE}, {"CAP_DAC_READ_SEARCH", unix.CAP_DAC_READ_SEARCH},
}

// capabilities is the effective set of this process, as far as it matters.
func (m machine) capabilities() string {
	text, err := m.read("proc/self/status")
	if err != nil {
		return unknown(err)
	}
	_, rest, _ := strings.Cut(text, "\nCapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	if err != nil {
		return "unknown: /proc/self/status has no line CapEff"
	}
	var have, lack []string
	for _, c := range needed {
		if set>>c.bit&1 == 1 {
			have = append(have, c.name)
		} else {
			lack = append(lack, c.name)
		}
	}
	switch {
	case len(lack) == 0:
		return strings.Join(have, " ")
	case len(have) == 0:
		return "none of " + strings.Join(lack, " ")
	}
	return strings.Join(have, " ") + "; not " + strings.Join(lack, " ")
}
