// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/binary"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// events applies what one read of inotify gave: struct inotify_event, each
// followed by its name (inotify(7)). Callers hold mu.
func (c *Cgroups) events(b []byte) {
	for len(b) >= unix.SizeofInotifyEvent {
		watch := int32(binary.NativeEndian.Uint32(b))
		mask := binary.NativeEndian.Uint32(b[4:])
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		if size > len(b) {
			return
		}
		name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:size], []byte{0})
		c.event(watch, mask, string(name))
		b = b[size:]
	}
}

func (c *Cgroups) event(watch int32, mask uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		c.walk() // the kernel dropped events; the tree has the truth
		return
	}
	parent, known := c.byWatch[watch]
	if !known || mask&unix.IN_ISDIR == 0 {
		return
	}
	path := filepath.Join(parent, name)
	switch {
	case mask&unix.IN_CREATE != 0:
		c.enter(path, nil)
	case mask&unix.IN_DELETE != 0:
		// A new one of the same name may be there already.
		if _, err := unix.InotifyAddWatch(c.fd, filepath.Join(c.mount, path), unix.IN_CREATE|unix.IN_DELETE|unix.IN_ONLYDIR); err != nil {
			c.remove(path)
		} else {
			c.enter(path, nil)
		}
	}
}
