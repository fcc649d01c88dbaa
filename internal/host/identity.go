// SPDX-License-Identifier: Apache-2.0

package host

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// unitSuffixes are the kinds of systemd unit that have a cgroup
// (systemd.unit(5)).
var unitSuffixes = []string{".service", ".scope", ".slice", ".socket", ".mount", ".swap"}

// Unit is the systemd unit a cgroup belongs to: the last component of its path
// that names one, or "".
func (g Cgroup) Unit() string {
	for name := range components(g.Path) {
		if slices.Contains(unitSuffixes, path.Ext(name)) {
			// A name that could be taken for a file of the kernel's has
			// an underscore before it (systemd, cg_escape).
			return strings.TrimPrefix(name, "_")
		}
	}
	return ""
}

// container is how runtimes name a container's cgroup: by its id of 64
// hexadecimal digits, alone (docker and kubelet with the cgroupfs driver), in a
// scope (docker-ID.scope, cri-containerd-ID.scope, crio-ID.scope,
// libpod-ID.scope) or after a colon (pod.slice:cri-containerd:ID). That of
// conmon, which watches over a container, is not the container's.
var container = regexp.MustCompile(`^(?:(.*)[-:])?([0-9a-f]{64})(?:\.scope)?$`)

// Container is the id (for LXC the name) of the container that a cgroup
// belongs to, or "".
func (g Cgroup) Container() string {
	for name, parent := range components(g.Path) {
		if m := container.FindStringSubmatch(name); m != nil && !strings.HasSuffix(m[1], "conmon") {
			return m[2]
		}
		if lxc, ok := strings.CutPrefix(name, "lxc.payload."); ok {
			return lxc
		}
		if parent == "lxc" || parent == "lxc.payload" {
			return name
		}
	}
	return ""
}

// components yields each name in a path with the name before it, the last
// first.
func components(p string) func(yield func(name, parent string) bool) {
	return func(yield func(name, parent string) bool) {
		for names := strings.Split(strings.Trim(p, "/"), "/"); len(names) > 0; names = names[:len(names)-1] {
			parent := ""
			if len(names) > 1 {
				parent = names[len(names)-2]
			}
			if !yield(names[len(names)-1], parent) {
				return
			}
		}
	}
}
