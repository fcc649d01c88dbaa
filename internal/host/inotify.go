// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// event is a struct inotify_event with its name (inotify(7)).
type event struct {
	watch int32
	mask  uint32
	name  string
}

// cutEvent takes the first event off b; ok is false when there is no whole one.
func cutEvent(b []byte) (e event, rest []byte, ok bool) {
	if len(b) < unix.SizeofInotifyEvent {
		return e, nil, false
	}
	length := uint64(binary.NativeEndian.Uint32(b[12:]))
	text := b[unix.SizeofInotifyEvent:]
	if length > uint64(len(text)) {
		return e, nil, false
	}
	name, _, _ := bytes.Cut(text[:length], []byte{0}) // padded with zeros
	e = event{int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:]), string(name)}
	return e, text[length:], true
}

// events applies what one read of inotify gave. An event says where to look,
// never what is there: that is what the tree says now. Callers hold mu.
func (c *Cgroups) events(b []byte) {
	for e, rest, ok := cutEvent(b); ok; e, rest, ok = cutEvent(rest) {
		if e.mask&unix.IN_Q_OVERFLOW != 0 {
			c.walk() // the kernel dropped events
			continue
		}
		if parent := c.watches[e.watch]; parent != nil && e.mask&unix.IN_ISDIR != 0 && e.name != "" {
			c.look(parent, e.name)
		}
	}
}
