// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// settle makes a process small that is to run for long and has begun to, and
// keeps it so until the context ends: it gives back what beginning took, lets
// little garbage gather (in percent of what is in use), and after a page was
// looked at or a query was answered it gives back the code of that.
func settle(ctx context.Context, garbage int) {
	debug.SetGCPercent(garbage)
	debug.FreeOSMemory()
	forgetCode()
	go func() {
		for wait := settled; ; wait = time.Minute {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
				forgetCode()
			}
		}
	}()
}

// settled is how long a process does what it does only once, such as the first
// answers.
const settled = 5 * time.Second

// forgetCode lets go of the program's own pages. To begin, the libraries touch
// two thirds of its 28 MB, as the kernel maps 64 kB around each page that is
// touched (fault_around_bytes). What is needed again is mapped again, out of
// the page cache; that is a third of it. Once takes less than a millisecond.
func forgetCode() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return // the pages stay, which is no harm
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, m := range codeOf(string(maps), exe) {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_DONTNEED) // or they stay
	}
}

// mapping is a range of addresses.
type mapping struct{ begin, end uintptr }

// codeOf finds in smaps (proc_pid_smaps(5)) the mappings of a file that cannot
// be written to and hold nothing but what is in the file: the breakpoint of a
// debugger or a uprobe is not in it, and would be lost.
func codeOf(smaps, file string) (all []mapping) {
	var m mapping
	ours := false
	for line := range strings.Lines(smaps) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if begin, end, ok := strings.Cut(fields[0], "-"); ok {
			from, err1 := strconv.ParseUint(begin, 16, 64)
			to, err2 := strconv.ParseUint(end, 16, 64)
			m = mapping{uintptr(from), uintptr(to)}
			ours = err1 == nil && err2 == nil && !strings.Contains(fields[1], "w") && strings.HasSuffix(strings.TrimSpace(line), " "+file)
		}
		if ours && fields[0] == "Anonymous:" && fields[1] == "0" {
			all = append(all, m)
		}
	}
	return all
}
