// SPDX-License-Identifier: Apache-2.0

package host

import (
	"iter"
	"strings"
)

// mount is a line of /proc/self/mounts (proc(5)).
type mount struct{ at, kind, options string }

func parseMounts(text string) iter.Seq[mount] {
	return func(yield func(mount) bool) {
		for line := range strings.Lines(text) {
			if f := strings.Fields(line); len(f) >= 4 && !yield(mount{unescape.Replace(f[1]), f[2], f[3]}) {
				return
			}
		}
	}
}

// unescape undoes the octal escapes of fstab(5).
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
