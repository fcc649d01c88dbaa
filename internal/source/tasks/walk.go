// SPDX-License-Identifier: Apache-2.0

package tasks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"rezolus/internal/source"
)

// walker reads directories of tasks and what is in them, in memory of its own.
type walker struct {
	entries [16 << 10]byte
	path    []byte
	text    [2 << 10]byte // a stat is some hundred bytes
}

// open opens the file or directory id/name below dir, which is a descriptor.
func (w *walker) open(dir int, id int32, name string) (int, error) {
	w.path = append(strconv.AppendInt(w.path[:0], int64(id), 10), '/')
	w.path = append(append(w.path, name...), 0)
	// unix.Openat would copy the name.
	fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(&w.path[0])),
		unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// list sets ids to the numbers that name entries of the directory, and is no
// longer than limit.
func (w *walker) list(dir int, ids []int32, limit int) ([]int32, error) {
	ids = ids[:0]
	if _, err := unix.Seek(dir, 0, unix.SEEK_SET); err != nil {
		return ids, err
	}
	for {
		n, err := unix.ReadDirent(dir, w.entries[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return ids, err
		}
		// struct linux_dirent64: inode and offset, then the length of the
		// entry, its type and the name (getdents64(2)).
		for b := w.entries[:n]; len(b) >= 20; {
			length := int(binary.NativeEndian.Uint16(b[16:]))
			if length < 20 || length > len(b) {
				return ids, fmt.Errorf("an entry of %d bytes of %d", length, len(b))
			}
			id, rest, ok := source.Number(b[19:length])
			if ok && rest[0] == 0 && id <= 1<<30 && len(ids) < limit {
				ids = append(ids, int32(id))
			}
			b = b[length:]
		}
	}
}

// stat is what /proc/PID/stat says (proc_pid_stat(5)).
type stat struct {
	comm  []byte
	ticks uint64 // in user and in kernel mode
	birth uint64 // ticks after the machine started
}

// stat reads id/stat below dir. The name is valid until the next one is read.
func (w *walker) stat(dir int, id int32) (stat, bool) {
	fd, err := w.open(dir, id, "stat")
	if err != nil {
		return stat{}, false
	}
	n, err := unix.Read(fd, w.text[:])
	unix.Close(fd)
	if err != nil || n <= 0 {
		return stat{}, false // it went away
	}
	return parseStat(w.text[:n])
}

// parseStat reads "PID (name) state ...". The name may have blanks and
// parentheses in it; nothing after it has.
func parseStat(text []byte) (s stat, ok bool) {
	from, to := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if from < 0 || to < from {
		return s, false
	}
	s.comm = text[from+1 : to]
	text = text[to+1:]
	const first, utime, stime, birth = 3, 14, 15, 22 // fields, as proc_pid_stat(5) counts them
	for field := first; field <= birth; field++ {
		for len(text) > 0 && text[0] == ' ' {
			text = text[1:]
		}
		switch field {
		case utime, stime, birth:
			n, rest, ok := source.Number(text)
			if !ok {
				return s, false
			}
			if text = rest; field == birth {
				s.birth = n
			} else {
				s.ticks += n
			}
		default:
			end := bytes.IndexByte(text, ' ')
			if end <= 0 {
				return s, false
			}
			text = text[end:]
		}
	}
	return s, len(text) == 0 || text[0] == ' ' || text[0] == '\n'
}

// cgroup is the control group that the CPU time of id counts in, or empty.
func (w *walker) cgroup(dir int, id int32) string {
	fd, err := w.open(dir, id, "cgroup")
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	text := make([]byte, 16<<10)
	n, err := unix.Read(fd, text)
	if err != nil || n <= 0 {
		return ""
	}
	return parseCgroup(text[:n])
}

// parseCgroup reads lines "hierarchy:controllers:path" (cgroups(7)). CPU time
// counts in the hierarchy of cpuacct where there is one, else in the unified.
func parseCgroup(text []byte) (path string) {
	for line := range bytes.Lines(text) {
		parts := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(":"), 3)
		if len(parts) < 3 {
			continue
		}
		for controller := range bytes.SplitSeq(parts[1], []byte(",")) {
			if string(controller) == "cpuacct" {
				return string(parts[2])
			}
		}
		if string(parts[0]) == "0" {
			path = string(parts[2])
		}
	}
	return path
}
