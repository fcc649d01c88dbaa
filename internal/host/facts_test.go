// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// made is a machine of the files that a test gives it.
func made(t *testing.T, files map[string]string) machine {
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
	return machine(root)
}

type files = map[string]string

func TestFacts(t *testing.T) {
	f := func(ask func(machine) string, with files, want string) {
		t.Helper()
		if got := ask(made(t, with)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f(machine.lockdown, files{"sys/kernel/security/lockdown": "none [integrity] confidentiality\n"}, "integrity")
	f(machine.lockdown, files{"sys/kernel/security/lsm": "capability"}, "none: built without it")
	f(machine.lockdown, nil, "unknown: securityfs is not mounted")
	f(machine.cpus, files{"sys/devices/system/cpu/online": "0-3\n", "sys/devices/system/cpu/possible": "0-7\n"}, "0-3 online, 0-7 possible")
	f(machine.virtual, files{"proc/cpuinfo": "flags\t\t: fpu hypervisor sse\n"}, "yes")
	f(machine.virtual, files{"proc/cpuinfo": "flags\t: hypervisor\n", "sys/class/dmi/id/product_name": "m5.large\n"}, "yes m5.large")
	f(machine.virtual, files{"proc/cpuinfo": "flags\t: fpu nohypervisor\n"}, "no sign of it")
	f(machine.capabilities, files{"proc/self/status": "Name:\tx\nCapEff:\t000001ffffffffff\n"},
		"CAP_BPF CAP_PERFMON CAP_SYS_ADMIN CAP_SYS_RESOURCE CAP_DAC_READ_SEARCH")
	f(machine.capabilities, files{"proc/self/status": "CapPrm:\t1\nCapEff:\t000000c000000000\nCapBnd:\t0\n"},
		"CAP_BPF CAP_PERFMON; not CAP_SYS_ADMIN CAP_SYS_RESOURCE CAP_DAC_READ_SEARCH")
	f(machine.capabilities, files{"proc/self/status": "x\nCapEff:\t0\n"},
		"none of CAP_BPF CAP_PERFMON CAP_SYS_ADMIN CAP_SYS_RESOURCE CAP_DAC_READ_SEARCH")
	tracefs := func(m machine) string { return m.mounted("tracefs", "no") }
	f(tracefs, files{"proc/self/mounts": "t /t tmpfs rw 0 0\ntracefs /sys/kernel/tracing tracefs rw 0 0\n"}, "at /sys/kernel/tracing")
	f(tracefs, files{"proc/self/mounts": "tracefs /t tmpfs rw 0 0\n"}, "no")
	stats := func(m machine) string { return m.sysctl("a/b", map[string]string{"0": "off"}) }
	f(stats, files{"proc/sys/a/b": "0\n"}, "off")
	f(stats, files{"proc/sys/a/b": "7\n"}, "7")
}

// TestUnreadableIsUnknown asks a machine without /proc and /sys.
func TestUnreadableIsUnknown(t *testing.T) {
	m := made(t, files{"proc/self": "a file where a folder should be"})
	for name, said := range map[string]string{
		"lockdown": m.lockdown(), "cpus": m.cpus(), "virtual": m.virtual(), "capabilities": m.capabilities(),
		"mounted": m.mounted("x", "no"), "sysctl": m.sysctl("a", nil), "presence": m.presence("proc/self/x", "yes", "no"),
	} {
		if !strings.HasPrefix(said, "unknown: ") {
			t.Errorf("%s says %q", name, said)
		}
	}
}

// TestFactsOfThisMachine needs root, so that everything can be found out.
func TestFactsOfThisMachine(t *testing.T) {
	said := map[string]string{}
	for _, fact := range Examine().Lines() {
		t.Logf("%s: %s", fact.Name, fact.Value)
		if fact.Value == "" || said[fact.Name] != "" {
			t.Errorf("%s is said twice or is empty", fact.Name)
		}
		said[fact.Name] = fact.Value
		if strings.HasPrefix(fact.Value, "unknown") && fact.Name != "lockdown" {
			t.Errorf("%s: %s", fact.Name, fact.Value)
		}
	}
	// The kernel answers for each capability itself.
	for _, c := range needed {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			t.Fatal(err)
		}
		has := data[c.bit/32].Effective>>(c.bit%32)&1 == 1
		have, _, _ := strings.Cut(said["capabilities"], "; not ")
		if strings.Contains(" "+have+" ", " "+c.name+" ") != has {
			t.Errorf("capabilities are %q; capget(2) has %s: %v", said["capabilities"], c.name, has)
		}
	}
}
