// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEverySystemCallHasAClass holds syscalls.tsv against the kernel's tables
// as golang.org/x/sys has them: each number that an architecture knows must be
// there, under its name, with a class that exists.
func TestEverySystemCallHasAClass(t *testing.T) {
	text, err := os.ReadFile("task/syscalls.tsv")
	if err != nil {
		t.Fatal(err)
	}
	classes := map[string]bool{}
	for c := range strings.FieldsSeq("other read write poll lock time sleep socket yield filesystem memory process query ipc timer event") {
		classes[c] = true
	}
	numbers := [2]map[string]string{{}, {}} // by name: amd64, arm64
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		if len(f) != 4 || !classes[f[3]] {
			t.Fatalf("line %q", line)
		}
		for i := range numbers {
			if f[1+i] != "-" {
				numbers[i][f[0]] = f[1+i]
			}
		}
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`(?m)^\s+SYS_(\w+)\s+=\s+(\d+)`)
	for i, arch := range []string{"amd64", "arm64"} {
		table, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "unix", "zsysnum_linux_"+arch+".go"))
		if err != nil {
			t.Fatal(err)
		}
		known := 0
		for _, m := range call.FindAllStringSubmatch(string(table), -1) {
			name := strings.ToLower(m[1])
			if name == "arch_specific_syscall" { // the first of a range, not a call
				continue
			}
			known++
			if numbers[i][name] != m[2] {
				t.Errorf("%s: %s is %s in the kernel's table and %q in ours", arch, name, m[2], numbers[i][name])
			}
		}
		if known < 300 {
			t.Errorf("%s: only %d calls in the table to compare with", arch, known)
		}
	}
}

func TestObjectsAreWhatTheirSourcesMake(t *testing.T) {
	cmd := exec.Command("scripts/generate.sh", "--check")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
