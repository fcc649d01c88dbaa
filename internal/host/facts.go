// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Fact is one thing that is known of the machine, in words. A thing that could
// not be found out says so.
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
	release := "unknown"
	if k, err := RunningKernel(); err == nil {
		release = k.Release
	}
	online := Online()
	return Facts{
		{"kernel", release + " " + runtime.GOARCH},
		{"CPUs", fmt.Sprintf("%d online, %d possible", len(online), Possible())},
		{"BTF of the kernel", presence("/sys/kernel/btf/vmlinux", "yes", "no: build with CONFIG_DEBUG_INFO_BTF, or name a file as general.btf_path")},
		{"lockdown", lockdown()},
		{"kprobes", presence("/sys/kernel/debug/kprobes/enabled", "yes", kprobesByName())},
		{"tracefs", presence("/sys/kernel/tracing/events", "mounted", "not mounted; it is mounted when a probe needs it")},
		{"hardware PMU", presence("/sys/bus/event_source/devices/cpu", "yes", "none: a virtual machine without one, most likely")},
		{"unprivileged BPF", sysctl("kernel/unprivileged_bpf_disabled", map[string]string{"0": "allowed", "1": "forbidden", "2": "forbidden"})},
		{"BPF statistics", sysctl("kernel/bpf_stats_enabled", map[string]string{"0": "off", "1": "on: each run of a program costs some 20 ns more"})},
		{"capabilities", capabilities()},
		{"locked memory", memlock()},
	}
}

// presence is yes or no by whether a file is there; a directory that may not
// be looked into is neither.
func presence(path, yes, no string) string {
	_, err := os.Stat(path)
	switch {
	case err == nil:
		return yes
	case errors.Is(err, fs.ErrNotExist):
		return no
	}
	return "unknown: " + err.Error()
}

// kprobesByName looks for the symbol of the kprobe PMU, for hosts where debugfs
// is not mounted.
func kprobesByName() string {
	return presence("/sys/bus/event_source/devices/kprobe", "yes", "no: built without CONFIG_KPROBES")
}

// lockdown is the mode between brackets (kernel_lockdown(7)).
func lockdown() string {
	text, err := os.ReadFile("/sys/kernel/security/lockdown")
	if err != nil {
		return "unknown: securityfs is not mounted"
	}
	_, rest, _ := strings.Cut(string(text), "[")
	mode, _, ok := strings.Cut(rest, "]")
	if !ok {
		return "unknown form: " + strings.TrimSpace(string(text))
	}
	return mode
}

func sysctl(name string, words map[string]string) string {
	text, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return "unknown: " + err.Error()
	}
	value := strings.TrimSpace(string(text))
	if word, ok := words[value]; ok {
		return word
	}
	return value
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
func capabilities() string {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "unknown: " + err.Error()
	}
	_, rest, _ := strings.Cut(string(text), "CapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	if err != nil {
		return "unknown form: " + line
	}
	var have, lack []string
	for _, c := range needed {
		if set>>c.bit&1 == 1 {
			have = append(have, c.name)
		} else {
			lack = append(lack, c.name)
		}
	}
	said := fmt.Sprintf("%d of 64", bits.OnesCount64(set))
	if len(have) > 0 {
		said += ", with " + strings.Join(have, " ")
	}
	if len(lack) > 0 {
		said += ", without " + strings.Join(lack, " ")
	}
	return said
}

func memlock() string {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return "unknown: " + err.Error()
	}
	if r.Cur == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return fmt.Sprintf("%d kB; kernels before 5.11 count BPF maps against it", r.Cur>>10)
}
