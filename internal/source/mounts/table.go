// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// mount is a line of /proc/self/mountinfo (proc_pid_mountinfo(5)).
type mount struct {
	id     uint64
	number string // major:minor of the file system
	root   string // what of the file system is mounted
	point  string // where
	kind   string // of file system
	device string
}

// noSpace are the kinds of file systems that keep no files, and those that are
// full when they are made: images that are only read.
var noSpace = strings.Fields(`autofs binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts devtmpfs efivarfs erofs
	fuse.gvfsd-fuse fuse.lxcfs fuse.portal fusectl hugetlbfs iso9660 mqueue nfsd nsfs proc pstore resctrl rpc_pipefs
	securityfs selinuxfs smackfs squashfs sysfs tracefs`)

// noPlaces are where file systems hold other mounts or the kernel's own files.
var noPlaces = []string{"/proc/", "/sys/"}

var errTable = errors.New("mountinfo is not as proc_pid_mountinfo(5) has it")

// parse is the mounts whose space is to be told, one a file system: bind mounts
// and mounts of a part of it show the same space again. Overlays show that of
// another mount, so only one at the root is told.
func parse(text string) ([]mount, error) {
	var all []mount
	for line := range strings.Lines(text) {
		m, ok := parseLine(line)
		if !ok {
			return nil, errTable
		}
		inNoPlace := slices.ContainsFunc(noPlaces, func(p string) bool { return strings.HasPrefix(m.point, p) })
		if inNoPlace || slices.Contains(noSpace, m.kind) || m.kind == "overlay" && m.point != "/" {
			continue
		}
		// What is mounted last at a place is what is seen there.
		all = append(slices.DeleteFunc(all, func(o mount) bool { return o.point == m.point }), m)
	}
	best := map[string]mount{}
	for _, m := range all {
		if o, known := best[m.number]; !known || better(m, o) {
			best[m.number] = m
		}
	}
	return slices.DeleteFunc(all, func(m mount) bool { return best[m.number] != m }), nil
}

// better tells which of two mounts of a file system stands for it: the one of
// its root, then the shortest path.
func better(a, b mount) bool {
	return cmp.Or(cmp.Compare(len(a.root), len(b.root)), cmp.Compare(len(a.point), len(b.point)), cmp.Compare(a.id, b.id)) < 0
}

// parseLine reads "36 35 98:0 /mnt1 /mnt2 rw master:1 - ext3 /dev/root rw".
func parseLine(line string) (m mount, ok bool) {
	before, after, found := strings.Cut(line, " - ")
	where, what := strings.Fields(before), strings.Fields(after)
	if !found || len(where) < 6 || len(what) < 2 {
		return m, false
	}
	id, err := strconv.ParseUint(where[0], 10, 64)
	return mount{id: id, number: where[2], root: unescape.Replace(where[3]), point: unescape.Replace(where[4]),
		kind: what[0], device: unescape.Replace(what[1])}, err == nil
}

// unescape undoes the octal escapes of the kernel (fs/seq_file.c, mangle_path;
// a # at the beginning of a line would be a comment in fstab(5)).
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#")
