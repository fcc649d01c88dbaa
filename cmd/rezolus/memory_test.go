// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestCodeOf(t *testing.T) {
	entry := func(head, anonymous string) string {
		return head + "\nSize:  8 kB\nRss:  8 kB\nAnonymous:      " + anonymous + " kB\nVmFlags: rd ex\n"
	}
	const inode = " 00000000 fe:00 17                 "
	smaps := entry("00400000-010d8000 r-xp"+inode+"/usr/bin/rezolus", "0") +
		entry("010d8000-01fee000 r--p"+inode+"/usr/bin/rezolus", "0") +
		entry("01fee000-01fef000 r-xp"+inode+"/usr/bin/rezolus", "4") + // a breakpoint
		entry("01fef000-020f8000 rw-p"+inode+"/usr/bin/rezolus", "0") +
		entry("7f0000000000-7f0000001000 r-xp"+inode+"/usr/lib/usr/bin/rezolus", "0") +
		entry("7f0000001000-7f0000002000 r--p"+inode+"/usr/bin/rezolus", "0") +
		entry("7f0000002000-7f0000003000 r-xp 00000000 00:00 0", "0")
	want := []mapping{{0x400000, 0x10d8000}, {0x10d8000, 0x1fee000}, {0x7f0000001000, 0x7f0000002000}}
	if got := codeOf(smaps, "/usr/bin/rezolus"); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// residentFile is how much of its files this process has mapped, in kB.
func residentFile(t *testing.T) int {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "RssFile:")
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// What is forgotten is there again when it is needed, and only that.
func TestForgetCode(t *testing.T) {
	before := residentFile(t)
	forgetCode()
	after := residentFile(t)
	if after > before/2 {
		t.Errorf("%d kB of the program are resident, and %d kB when it is forgotten", before, after)
	}
	t.Logf("%d kB, and then %d kB", before, after)
}
