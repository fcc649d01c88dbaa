// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// mode is who may connect: connect(2) asks for write permission (unix(7)).
const mode = 0o660

// identity says which file a path was, so that no other is removed.
type identity struct{ device, inode uint64 }

func identityOf(path string) (identity, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return identity{}, err
	}
	return identity{st.Dev, st.Ino}, nil
}

// remove removes the socket if it is still this one.
func (i identity) remove(path string) {
	if now, err := identityOf(path); err == nil && now == i {
		_ = os.Remove(path) // a socket left behind is found stale by the next agent
	}
}

// listen makes the socket.
func (s *Source) listen() error {
	path := s.options.Path
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the folder of the external socket: %w", err)
	}
	if err := removeStale(path); err != nil {
		return err
	}
	// The kernel makes the file with the mode of the socket's own inode
	// (net/unix/af_unix.c, unix_bind_bsd), so that there is no moment at
	// which others may connect.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), mode) })
		return errors.Join(err, failed)
	}}
	l, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return fmt.Errorf("listen on the external socket: %w", err)
	}
	s.listener = l.(*net.UnixListener)
	s.listener.SetUnlinkOnClose(false) // it would remove another's, too
	s.socket, err = identityOf(path)
	if err == nil {
		err = s.permit()
	}
	if err != nil {
		s.listener.Close()
		s.socket.remove(path)
		return fmt.Errorf("set the rights of %s: %w", path, err)
	}
	return nil
}

// permit sets what the umask may have taken away, and the group.
func (s *Source) permit() error {
	if s.options.Group != "" {
		id, err := groupID(s.options.Group)
		if err != nil {
			return err
		}
		if err := os.Lchown(s.options.Path, -1, id); err != nil {
			return err
		}
	}
	return os.Chmod(s.options.Path, mode)
}

// groupID is the number of a group, by its name or by that number itself.
func groupID(group string) (int, error) {
	if id, err := strconv.Atoi(group); err == nil {
		return id, nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(g.Gid)
}

// removeStale removes a socket that nobody listens on. Anything else at path
// is an error.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the external socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("external socket %s: there is something that is no socket; move it away or choose another path", path)
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err == nil {
		c.Close()
	}
	if err == nil || !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("external socket %s is in use; stop the other agent or choose another path", path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the stale external socket: %w", err)
	}
	return nil
}

// process is who is at the other end, as the kernel noted it at connect(2)
// (SO_PEERCRED, unix(7)). Of a process in a PID namespace that the agent does
// not see, pid is 0: all of these of one user count as one.
type process struct {
	uid uint32
	pid int32
}

func peerOf(c *net.UnixConn) (process, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return process{}, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return process{}, err
	}
	if failed != nil {
		return process{}, failed
	}
	return process{cred.Uid, cred.Pid}, nil
}

// tell sends a line if the socket has room for it, and never waits. The kernel
// takes so small a message as a whole or not at all (af_unix.c,
// unix_stream_sendmsg).
func tell(c *net.UnixConn, line string) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Write(func(fd uintptr) bool {
		_, _ = unix.SendmsgN(int(fd), []byte(line), nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return true
	})
}
