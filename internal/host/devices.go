// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Device is a block device or a network interface.
type Device struct {
	// ID is what the kernel's own structures have. Of a block device it is
	// its dev_t (major << 20 | minor, include/linux/kdev_t.h); of an
	// interface its index, and above bit 32 the inode number of its network
	// namespace.
	ID   uint64
	Name string // kernel name; of a device-mapper device the name it was given
	Kind string // of an interface: loopback, veth, bridge, bond, tun, ..., physical or virtual
}

// Devices follows the devices of a class of /sys. The kernel tells of each
// that comes, goes or is renamed (NETLINK_KOBJECT_UEVENT,
// lib/kobject_uevent.c); the class is then listed anew.
type Devices struct {
	list   func() ([]Device, error)
	class  string
	log    *slog.Logger
	socket int
	wake   [2]int // a pipe that ends the tracker
	done   chan struct{}
	once   sync.Once

	mu     sync.Mutex
	known  []Device // sorted by ID
	notify func(born, died []Device)
}

// TrackBlock follows the disks: block devices that take requests, so not their
// partitions.
func TrackBlock(log *slog.Logger, notify func(born, died []Device)) (*Devices, error) {
	return trackDevices("block", func() ([]Device, error) { return listBlock("/sys/block") }, log, notify)
}

// TrackInterfaces follows the interfaces of the agent's network namespace.
func TrackInterfaces(log *slog.Logger, notify func(born, died []Device)) (*Devices, error) {
	return trackDevices("net", func() ([]Device, error) { return listInterfaces("/sys/class/net") }, log, notify)
}

// trackDevices tells notify of all devices that are there, then of those that come
// and go, from one goroutine.
func trackDevices(class string, list func() ([]Device, error), log *slog.Logger, notify func(born, died []Device)) (*Devices, error) {
	d := &Devices{list: list, class: class, log: log, notify: notify, done: make(chan struct{})}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	var err error
	d.socket, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("follow devices of class %s: %w", class, err)
	}
	if err := unix.Bind(d.socket, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		return nil, errors.Join(fmt.Errorf("follow devices of class %s: %w", class, err), unix.Close(d.socket))
	}
	if err := unix.Pipe2(d.wake[:], unix.O_CLOEXEC); err != nil {
		return nil, errors.Join(fmt.Errorf("follow devices of class %s: %w", class, err), unix.Close(d.socket))
	}
	if err := d.refresh(); err != nil {
		return nil, errors.Join(err, d.closeFiles())
	}
	go d.follow()
	return d, nil
}

// settle is how long a burst of events is let pass before the class is listed:
// a container brings several at once.
const settle = 50 * time.Millisecond

func (d *Devices) follow() {
	defer close(d.done)
	for {
		poll := []unix.PollFd{{Fd: int32(d.socket), Events: unix.POLLIN}, {Fd: int32(d.wake[0]), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil && !errors.Is(err, unix.EINTR) {
			d.log.Error("devices are no longer followed", "class", d.class, "error", err)
			return
		}
		if poll[1].Revents != 0 {
			return
		}
		if poll[0].Revents == 0 || !d.concerned() {
			continue
		}
		if _, err := unix.Poll(poll[1:], int(settle.Milliseconds())); err == nil && poll[1].Revents != 0 {
			return
		}
		if err := d.refresh(); err != nil {
			d.log.Warn("devices are not told apart as they are now", "error", err)
		}
	}
}

// concerned empties the socket and tells whether the class may have changed.
// An overrun (ENOBUFS) lost events, so it may.
func (d *Devices) concerned() (yes bool) {
	buf := make([]byte, 8<<10)
	for {
		n, _, err := unix.Recvfrom(d.socket, buf, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS):
			yes = true
		case err != nil:
			return yes
		case strings.Contains(string(buf[:n]), "\x00SUBSYSTEM="+d.class+"\x00"):
			yes = true
		}
	}
}

// refresh lists the class and tells what changed. A device that was renamed
// died and was born.
func (d *Devices) refresh() error {
	now, err := d.list()
	if err != nil {
		return fmt.Errorf("list devices of class %s: %w", d.class, err)
	}
	slices.SortFunc(now, func(a, b Device) int { return strings.Compare(a.Name, b.Name) })
	d.mu.Lock()
	defer d.mu.Unlock()
	without := func(all, other []Device) (left []Device) {
		for _, e := range all {
			if !slices.Contains(other, e) {
				left = append(left, e)
			}
		}
		return left
	}
	born, died := without(now, d.known), without(d.known, now)
	d.known = now
	if len(born)+len(died) > 0 {
		d.notify(born, died)
	}
	return nil
}

// Close ends the tracker.
func (d *Devices) Close() error {
	var err error
	d.once.Do(func() {
		_, err = unix.Write(d.wake[1], []byte{0})
		<-d.done
		err = errors.Join(err, d.closeFiles())
	})
	return err
}

func (d *Devices) closeFiles() error {
	return errors.Join(unix.Close(d.socket), unix.Close(d.wake[0]), unix.Close(d.wake[1]))
}

func listBlock(root string) ([]Device, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var all []Device
	for _, e := range entries {
		major, minor, ok := strings.Cut(readLine(filepath.Join(root, e.Name(), "dev")), ":")
		a, err1 := strconv.ParseUint(major, 10, 12)
		b, err2 := strconv.ParseUint(minor, 10, 20)
		if !ok || err1 != nil || err2 != nil {
			continue // gone since it was listed
		}
		name := e.Name()
		if given := readLine(filepath.Join(root, name, "dm/name")); given != "" {
			name = given
		}
		all = append(all, Device{ID: a<<20 | b, Name: name})
	}
	return all, nil
}

func listInterfaces(root string) ([]Device, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var namespace unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &namespace); err != nil {
		return nil, fmt.Errorf("stat /proc/self/ns/net: %w", err)
	}
	var all []Device
	for _, e := range entries {
		index, err := strconv.ParseUint(readLine(filepath.Join(root, e.Name(), "ifindex")), 10, 32)
		if err != nil {
			continue // gone since it was listed, or a file such as bonding_masters
		}
		all = append(all, Device{ID: namespace.Ino<<32 | index, Name: e.Name(), Kind: InterfaceKind(filepath.Join(root, e.Name()))})
	}
	return all, nil
}

// readLine is the first line of a small file, or nothing.
func readLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// InterfaceKind is the kind of the interface whose folder of /sys/class/net is
// at path, so that bytes are not added up twice: what passes a bridge, a bond
// or a veth pair passes other interfaces too. It is loopback, physical (there
// is a device behind it), what the kernel calls it (DEVTYPE: bridge, bond,
// vlan, ...), tun, veth or virtual.
func InterfaceKind(path string) string {
	const loopback = "772" // ARPHRD_LOOPBACK, include/uapi/linux/if_arp.h
	exists := func(pattern string) bool {
		found, err := filepath.Glob(filepath.Join(path, pattern))
		return err == nil && len(found) > 0
	}
	if readLine(filepath.Join(path, "type")) == loopback {
		return "loopback"
	}
	text, err := os.ReadFile(filepath.Join(path, "uevent"))
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if kind, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVTYPE="); ok {
				return kind
			}
		}
	}
	switch {
	case exists("tun_flags"):
		return "tun"
	case exists("device"):
		return "physical"
	// The other end of a veth pair is its link, and not one below it.
	case readLine(filepath.Join(path, "iflink")) != readLine(filepath.Join(path, "ifindex")) && !exists("lower_*"):
		return "veth"
	}
	return "virtual"
}
