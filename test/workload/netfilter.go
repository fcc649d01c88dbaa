// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// FarFirewall has netfilter drop every IPv4 packet that reaches the peer's
// namespace, by a program (Linux 6.4).
func (l *Link) FarFirewall(t testing.TB) {
	t.Helper()
	const drop = 0 // NF_DROP, include/uapi/linux/netfilter.h
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Netfilter, AttachType: ebpf.AttachNetfilter, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, drop), asm.Return()}})
	if err != nil {
		t.Fatalf("load a firewall: %v", err)
	}
	t.Cleanup(func() { program.Close() })
	l.Far(t, func() error {
		hook, err := link.AttachNetfilter(link.NetfilterOptions{Program: program,
			ProtocolFamily: link.NetfilterProtoIPv4, Hook: link.NetfilterInetLocalIn, Priority: -1})
		if err == nil {
			t.Cleanup(func() { hook.Close() })
		}
		return err
	})
}
