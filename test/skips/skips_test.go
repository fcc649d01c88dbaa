// SPDX-License-Identifier: Apache-2.0

package skips

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "skips.txt")
	list := "# a comment\n\n6.1-* bpf.TestArena arena maps came with 6.9\nhost bpf.TestKprobe/* this kernel has no kprobes\n"
	if err := os.WriteFile(file, []byte(list), 0o644); err != nil {
		t.Fatal(err)
	}
	f := func(want, environment string, skipped ...string) {
		t.Helper()
		err := Check(file, environment, skipped)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s %q: error %v, want %q", environment, skipped, err, want)
		}
	}
	f("", "6.12-amd64")
	f("", "6.1-amd64", "bpf.TestArena")
	f("bpf.TestArena", "6.12-amd64", "bpf.TestArena")
	f("bpf.TestOther", "6.1-amd64", "bpf.TestArena", "bpf.TestOther")
	f("", "host", "bpf.TestKprobe/entry")
}

func TestEveryReasonIsGiven(t *testing.T) {
	if err := Check("../skips.txt", "host", nil); err != nil {
		t.Error(err)
	}
	if _, err := parse("host bpf.TestX"); err == nil {
		t.Error("a skip without a reason is accepted")
	}
}
