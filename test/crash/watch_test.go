// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"bytes"
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// made is closed once a file whose name has that in it is made in a directory,
// or when the test ends.
func made(t *testing.T, dir, name string) <-chan struct{} {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == nil {
		_, err = unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO)
	}
	if err != nil {
		t.Fatal(err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	t.Cleanup(func() { events.Close() })
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		defer events.Close() // a user may have 128 of them, and there are a thousand lives
		buf := make([]byte, 16<<10)
		for {
			n, err := events.Read(buf)
			if err != nil {
				return
			}
			for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
				size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:])) // the name's length is the last field
				if strings.Contains(string(bytes.TrimRight(b[unix.SizeofInotifyEvent:size], "\x00")), name) {
					return
				}
				b = b[size:]
			}
		}
	}()
	return seen
}
