// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"
)

// errFewerArguments is what a program wants that reads an argument of its hook
// which came, or went, with another kernel.
var errFewerArguments = fmt.Errorf("%w: this kernel gives the hook fewer arguments than the program reads", ebpf.ErrNotSupported)

// haveMaps tells of the maps that hang on a task, which came with Linux 5.11.
// The kernel itself calls another type of map an invalid argument.
func haveMaps(spec *ebpf.CollectionSpec) error {
	for name, m := range spec.Maps {
		if m.Type != ebpf.TaskStorage {
			continue
		}
		if err := features.HaveMapType(m.Type); errors.Is(err, ebpf.ErrNotSupported) {
			return fmt.Errorf("make map %s: %w", name, err)
		}
	}
	return nil
}

// lacks is what this kernel does not have of what a program wants, by what its
// verifier says; "" for all else.
func lacks(err error) string {
	var verifier *ebpf.VerifierError
	if strings.Contains(err.Error(), "bad CO-RE relocation") {
		return "this kernel does not have a type or a field that the program reads"
	}
	if !errors.As(err, &verifier) {
		return ""
	}
	for _, line := range slices.Backward(verifier.Log) {
		// check_helper_call: its number is above all that this kernel has.
		var number int32
		if n, _ := fmt.Sscanf(line, "invalid func unknown#%d", &number); n == 1 {
			return fmt.Sprintf("this kernel does not have the helper %v (%d)", asm.BuiltinFunc(number), number)
		}
		// btf_ctx_access.
		if strings.Contains(line, "doesn't have") && strings.HasSuffix(line, "-th argument") {
			return errFewerArguments.Error()
		}
	}
	return ""
}

// unsupported tells whether the kernel cannot do it for anybody.
func unsupported(err error) bool {
	return errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.ENOENT) || errors.Is(err, os.ErrNotExist) ||
		errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || lacks(err) != "" ||
		// To root, a refusal is the kernel's: kernel_lockdown(7).
		errors.Is(err, unix.EPERM) && os.Geteuid() == 0 && !overMemlock(err)
}

// overMemlock tells whether there is more to lock than raiseMemlock could have
// allowed, by what the library says to it. It says so of every refusal, but
// since Linux 5.11 memory is counted for the cgroup.
func overMemlock(err error) bool {
	return strings.Contains(err.Error(), "MEMLOCK may be too low") && countsLocked()
}

func countsLocked() bool {
	var u unix.Utsname
	var major, minor int
	if unix.Uname(&u) != nil {
		return false
	}
	n, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	return n == 2 && err == nil && (major < 5 || major == 5 && minor < 11)
}

// Explain is an error of loading in one line, with what to do about it.
func Explain(err error) string {
	var verifier *ebpf.VerifierError
	text, _, _ := strings.Cut(err.Error(), "\n")
	switch {
	case lacks(err) != "":
		return lacks(err)
	case errors.As(err, &verifier) && len(verifier.Log) > 0 && !errors.Is(err, unix.EPERM):
		return fmt.Sprintf("the verifier refuses it: %s", strings.TrimSpace(verifier.Log[max(0, len(verifier.Log)-2)]))
	case errors.Is(err, btf.ErrNotFound) || strings.Contains(text, "no BTF found for kernel"):
		return "the kernel has no BTF of its own (CONFIG_DEBUG_INFO_BTF); name a file with it as general.btf_path"
	case overMemlock(err):
		return "locked memory is limited, and kernels before 5.11 count BPF maps against it; set LimitMEMLOCK=infinity, or give CAP_SYS_RESOURCE"
	case errors.Is(err, unix.EPERM) && os.Geteuid() != 0:
		return "not permitted; run as root, or with CAP_BPF and CAP_PERFMON"
	case errors.Is(err, unix.EPERM):
		return "the kernel forbids it even to root (lockdown, or kprobes and trampolines not built in)"
	}
	return text
}
