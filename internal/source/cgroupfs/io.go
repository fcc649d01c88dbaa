// SPDX-License-Identifier: Apache-2.0

package cgroupfs

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

const ioSampler = "cgroup_io"

var (
	ioBytes = &metric.Desc{Name: "cgroup_io_bytes", Help: "bytes that the cgroup moved to and from a device", Unit: metric.Bytes,
		Kind: metric.Counter, Keys: []string{"device", "name", "op"}, Sampler: ioSampler}
	ioOperations = &metric.Desc{Name: "cgroup_io_operations", Help: "operations of the cgroup on a device",
		Kind: metric.Counter, Keys: []string{"device", "name", "op"}, Sampler: ioSampler}
	ioUnread = &metric.Desc{Name: "cgroup_io_unread", Help: "cgroups that are not read, and devices of cgroups that are not told, for the limits",
		Kind: metric.Gauge, Sampler: ioSampler}
)

// ops are the values of the label op, in the order of a device's words: bytes
// of each, then operations of each.
var ops = [...]string{"read", "write", "discard"}

// The keys of io.stat, in that order (Documentation/admin-guide/cgroup-v2.rst).
var ioKeys = [2 * len(ops)]string{"rbytes", "wbytes", "dbytes", "rios", "wios", "dios"}

// maxDevices bounds the devices of a group that are told.
const maxDevices = 64

// IO is the source of what every group moved to and from every device: io.stat
// of the unified hierarchy. In v1 blkio.throttle.io_service_bytes has the like,
// but stays at zero for a group without a limit (seen on 6.1 and 6.18).
type IO struct {
	groups Groups
	mount  string
	limit  int
	sys    string // /sys/dev/block

	generation uint64
	members    []*mover
	omitted    int
	changed    bool
	schema     *metric.Schema
	buf        [16 << 10]byte
}

type mover struct {
	host.Cgroup
	path    []byte
	devices []device
}

type device struct {
	number uint64 // major << 32 | minor
	words  [2 * len(ops)]uint64
	seen   bool
}

func newIO(groups Groups, mount string, limit int) *IO {
	return &IO{groups: groups, mount: mount, limit: cmp.Or(limit, 1024), sys: "/sys/dev/block"}
}

// Name is the name of the sampler.
func (s *IO) Name() string { return ioSampler }

// Close has nothing to close: files are opened for a read.
func (s *IO) Close() error { return nil }

// Read fills f, without allocating while the same groups use the same devices.
func (s *IO) Read(f *metric.Frame) error {
	if g := s.groups.Generation(); g != s.generation || s.schema == nil {
		s.admit()
		s.generation = g
	}
	f.Begin = host.Mono()
	untold := 0
	for _, m := range s.members {
		n, err := s.readMember(m)
		if err != nil {
			return err
		}
		untold += n
	}
	f.End, f.Lost = host.Mono(), 0
	if s.changed {
		if err := s.rebuild(); err != nil {
			return err
		}
	}
	f.Schema = s.schema
	f.Resize(s.schema.Words)
	to := f.Values[:0]
	for half := range 2 {
		for _, m := range s.members {
			for i := range m.devices {
				to = append(to, m.devices[i].words[half*len(ops):][:len(ops)]...)
			}
		}
	}
	_ = append(to, uint64(s.omitted+untold))
	return nil
}

func (s *IO) admit() {
	all := s.groups.Members()
	s.omitted = max(0, len(all)-s.limit)
	known := map[uint64]*mover{}
	for _, m := range s.members {
		known[m.ID] = m
	}
	s.members = s.members[:0]
	for _, g := range all[:len(all)-s.omitted] {
		m := known[g.ID]
		if m == nil || m.Path != g.Path {
			m = &mover{Cgroup: g, path: append([]byte(s.mount+g.Path+"/io.stat"), 0)}
		}
		s.members = append(s.members, m)
	}
	s.changed = true
}

// readMember reads the file of a group and is how many devices it has no room
// for. A device that it no longer has is gone.
func (s *IO) readMember(m *mover) (untold int, err error) {
	for i := range m.devices {
		m.devices[i].seen = false
	}
	text, err := readPath(m.path, s.buf[:])
	if err != nil && err != unix.ENOENT && err != unix.ENODEV { // gone, or the controller is not on
		return 0, fmt.Errorf("read io.stat of cgroup %s: %w", m.Path, err)
	}
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, newline)
		told, err := s.parse(m, line)
		if err != nil {
			return 0, fmt.Errorf("read io.stat of cgroup %s: line %q: %w", m.Path, line, err)
		}
		if !told {
			untold++
		}
	}
	left := m.devices[:0]
	for _, d := range m.devices {
		if d.seen {
			left = append(left, d)
		}
	}
	s.changed = s.changed || len(left) != len(m.devices)
	m.devices = left
	return untold, nil
}

var errLine = fmt.Errorf("not as the kernel documents it")

// parse takes one line: "8:0 rbytes=1 wbytes=2 ...".
func (s *IO) parse(m *mover, line []byte) (told bool, err error) {
	word, rest, _ := bytes.Cut(line, space)
	major, minor, ok := bytes.Cut(word, colon)
	a, ok1 := number(major)
	b, ok2 := number(minor)
	if !ok || !ok1 || !ok2 || a > 1<<20 || b > 1<<20 {
		return false, errLine
	}
	d := s.device(m, a<<32|b)
	if d == nil {
		return false, nil
	}
	for len(rest) > 0 {
		word, rest, _ = bytes.Cut(rest, space)
		key, value, _ := bytes.Cut(word, equals)
		for i, k := range ioKeys {
			if string(key) != k {
				continue
			}
			if d.words[i], ok = number(value); !ok {
				return false, errLine
			}
		}
	}
	return true, nil
}

// device is the place of a device in a group, nil when there is no room.
func (s *IO) device(m *mover, number uint64) *device {
	for i := range m.devices {
		if m.devices[i].number == number {
			m.devices[i].seen = true
			return &m.devices[i]
		}
	}
	if len(m.devices) == maxDevices {
		return nil
	}
	m.devices = append(m.devices, device{number: number, seen: true})
	s.changed = true
	return &m.devices[len(m.devices)-1]
}

func (s *IO) rebuild() error {
	names := map[uint64]string{}
	var series []metric.Series
	for _, d := range []*metric.Desc{ioBytes, ioOperations} {
		for _, m := range s.members {
			for i := range m.devices {
				name := s.deviceName(names, m.devices[i].number)
				for _, op := range ops {
					series = append(series, metric.Series{Desc: d, Values: []string{name, m.Path, op}, Start: cmp.Or(m.Born, host.BootTime())})
				}
			}
		}
	}
	series = append(series, metric.Series{Desc: ioUnread})
	schema, err := metric.NewSchema(ioSampler, series)
	if err != nil {
		return err
	}
	s.schema, s.changed = schema, false
	return nil
}

// deviceName is the kernel's name of a device, or the one that a device mapper
// gave it; the number where it has none any more.
func (s *IO) deviceName(known map[uint64]string, number uint64) string {
	name, ok := known[number]
	if ok {
		return name
	}
	name = strconv.FormatUint(number>>32, 10) + ":" + strconv.FormatUint(number&(1<<32-1), 10)
	at := filepath.Join(s.sys, name)
	if given, err := os.ReadFile(filepath.Join(at, "dm/name")); err == nil {
		name = string(bytes.TrimSpace(given))
	} else if target, err := os.Readlink(at); err == nil {
		name = filepath.Base(target)
	}
	known[number] = name
	return name
}

var colon = []byte(":")
