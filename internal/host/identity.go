// SPDX-License-Identifier: Apache-2.0

package host

import (
	"path"
	"regexp"
	"strings"
)

// unitSuffixes are the kinds of systemd unit that have a cgroup
// (systemd.unit(5)).
var unitSuffixes = []string{".service", ".scope", ".slice"}

// Unit is the systemd unit a cgroup belongs to: the last component of its path
// that names one, or "".
func (g Cgroup) Unit() string {
	for p := g.Path; p != "/" && p != "."; p = path.Dir(p) {
		for _, suffix := range unitSuffixes {
			if strings.HasSuffix(p, suffix) {
				return path.Base(p)
			}
		}
	}
	return ""
}

// A container's id in a path: as docker, containerd, CRI-O and podman name a
// scope, or as a directory of its own under docker or kubepods.
var (
	containerScope = regexp.MustCompile(`^(?:docker|cri-containerd|crio|libpod)-([0-9a-f]{64})\.scope$`)
	containerDir   = regexp.MustCompile(`^(?:crio-|libpod-)?([0-9a-f]{64})$`)
	lxcDir         = regexp.MustCompile(`^(?:lxc\.payload\.)(.+)$`)
)

// Container is the id (for LXC the name) of the container that a cgroup
// belongs to, or "".
func (g Cgroup) Container() string {
	for p := g.Path; p != "/" && p != "."; p = path.Dir(p) {
		base := path.Base(p)
		for _, form := range []*regexp.Regexp{containerScope, containerDir, lxcDir} {
			if m := form.FindStringSubmatch(base); m != nil {
				return m[1]
			}
		}
		if path.Base(path.Dir(p)) == "lxc" {
			return base
		}
	}
	return ""
}
