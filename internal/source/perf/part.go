// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/source"
)

// kernel is what this package asks of the machine it runs on.
type kernel interface {
	// open makes a counter on a CPU, of everything there or of the tasks of
	// the control group whose directory is open as cgroup (-1: everything),
	// in the group of leader (-1: it leads one and does not count yet).
	open(attr *unix.PerfEventAttr, cgroup, cpu, leader int) (fd int, err error)
	enable(leader int) error
	read(fd int, b []byte) (int, error)
	close(fd int) error
	// online is the list of CPUs that are online, valid until the next call.
	online() ([]byte, error)
	release() error
}

// machine is the kernel below.
type machine struct{ cpus *source.File }

func (*machine) open(attr *unix.PerfEventAttr, cgroup, cpu, leader int) (int, error) {
	flags := unix.PERF_FLAG_FD_CLOEXEC
	if cgroup >= 0 {
		flags |= unix.PERF_FLAG_PID_CGROUP
	}
	return unix.PerfEventOpen(attr, cgroup, cpu, leader, flags)
}

func (*machine) enable(leader int) error {
	return unix.IoctlSetInt(leader, unix.PERF_EVENT_IOC_ENABLE, 0)
}

func (*machine) read(fd int, b []byte) (int, error) {
	for {
		if n, err := unix.Read(fd, b); err != unix.EINTR {
			return n, err
		}
	}
}

func (*machine) close(fd int) error { return unix.Close(fd) }

func (m *machine) online() ([]byte, error) {
	if m.cpus == nil {
		f, err := source.OpenFile(sysfs + "/devices/system/cpu/online")
		if err != nil {
			return nil, err
		}
		m.cpus = f
	}
	return m.cpus.Read()
}

func (m *machine) release() error {
	if m.cpus == nil {
		return nil
	}
	return m.cpus.Close()
}

// Errors of a part.
var (
	// errPushedOut: the kernel does not keep a pinned group on its counters;
	// read(2) then is at the end of the file (perf_event_open(2), pinned).
	errPushedOut = errors.New("the counters are taken")
	// errStopped: the CPU went offline, and the kernel takes counters off such
	// a CPU for good. Groups then fall apart, and no more time passes for them.
	errStopped = errors.New("the CPU went offline")
)

// part is a group of counters at one place.
type part struct {
	place
	cgroup int // as kernel.open has it
	leader int
	fds    []int // by event; -1: the processor has no such event

	values           []uint64 // by event, as they stood when the group last had run
	enabled, running uint64   // times of that moment, nanoseconds
	seen             uint64   // time enabled at the last read
	at               int64    // moment of the last read, host.Mono

	// What the last read brought. Without running there is nothing in gained:
	// when the group runs again, that time is made up for.
	gained               []uint64
	gainedOn, gainedRuns uint64 // time enabled and time running, nanoseconds
}

const readFormat = unix.PERF_FORMAT_GROUP | unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING

// openPart opens the events of g that the processor has; an error is that of
// one that none would be without, or of a lack that is not the processor's.
func openPart(k kernel, g *group, at place, cgroup int, pinned bool) (*part, error) {
	n := len(g.events)
	words := make([]uint64, 2*n)
	p := &part{place: at, cgroup: cgroup, leader: -1, fds: make([]int, n), values: words[:n], gained: words[n:]}
	for i := range p.fds {
		p.fds[i] = -1
	}
	var missing error
	for i := range g.events {
		c := g.events[i].code.at(at)
		attr := unix.PerfEventAttr{Type: c.kind, Size: unix.PERF_ATTR_SIZE_VER1, Config: c.config, Ext1: c.config1, Read_format: readFormat}
		if p.leader < 0 {
			attr.Bits |= unix.PerfBitDisabled // until the group is complete
			if pinned {
				attr.Bits |= unix.PerfBitPinned
			}
		}
		fd, err := k.open(&attr, cgroup, at.cpu, p.leader)
		if err != nil {
			err = explain(fmt.Errorf("open perf event of %s on CPU %d: %w", g.events[i].desc.Name, at.cpu, err))
			if !errors.Is(err, source.ErrUnsupported) {
				p.close(k)
				return nil, err
			}
			missing = err
			continue
		}
		if p.fds[i] = fd; p.leader < 0 {
			p.leader = fd
		}
	}
	if p.leader < 0 {
		return nil, missing
	}
	if err := k.enable(p.leader); err != nil {
		p.close(k)
		return nil, fmt.Errorf("start perf events on CPU %d: %w", at.cpu, err)
	}
	return p, nil
}

// standing is how long time may not pass for a group that is all right: reads
// may be close to each other.
const standing = int64(time.Millisecond)

// read takes over what was counted since the read before.
func (p *part) read(k kernel, buf []byte, now int64) error {
	clear(p.gained)
	p.gainedOn, p.gainedRuns = 0, 0
	n, err := k.read(p.leader, buf)
	if err != nil {
		return fmt.Errorf("read perf events of CPU %d: %w", p.cpu, err)
	}
	if n == 0 {
		return errPushedOut
	}
	open := 0
	for _, fd := range p.fds {
		if fd >= 0 {
			open++
		}
	}
	counters := int(word(buf, 0))
	if n < 8*3 || n < 8*(3+counters) || counters != open && counters != 1 {
		return fmt.Errorf("read perf events of CPU %d: %d bytes for %d counters", p.cpu, n, open)
	}
	enabled, running := word(buf, 1), word(buf, 2)
	stood := p.at != 0 && enabled == p.seen && now-p.at >= standing
	p.seen, p.at = enabled, now
	if stood && p.cgroup < 0 {
		return errStopped
	}
	p.gainedOn, p.gainedRuns = enabled-min(enabled, p.enabled), running-min(running, p.running)
	if p.gainedRuns > 0 {
		p.enabled, p.running = enabled, running
	}
	if counters < open {
		return p.readApart(k, buf)
	}
	if p.gainedRuns == 0 {
		return nil
	}
	for i, at := 0, 3; i < len(p.fds); i++ {
		if p.fds[i] >= 0 {
			p.gain(i, word(buf, at))
			at++
		}
	}
	return nil
}

// readApart reads a group that the kernel took apart, as it does when it takes
// it off its CPU: each counter now stands by itself, and still.
func (p *part) readApart(k kernel, buf []byte) error {
	for i, fd := range p.fds {
		if fd < 0 {
			continue
		}
		if n, err := k.read(fd, buf); err != nil {
			return fmt.Errorf("read perf event of CPU %d, which went offline: %w", p.cpu, err)
		} else if n < 8*4 {
			return errPushedOut
		}
		p.gain(i, word(buf, 3))
	}
	return errStopped
}

// gain takes over what a counter stands at.
func (p *part) gain(event int, value uint64) {
	p.gained[event] = scale(value-min(value, p.values[event]), p.gainedOn, p.gainedRuns)
	p.values[event] = value
}

// word is the i-th of what was read.
func word(b []byte, i int) uint64 { return binary.NativeEndian.Uint64(b[8*i:]) }

// known tells that the counters say something: that they ran, or that the
// group of tasks they are for did not.
func (p *part) known() bool { return p.running > 0 || p.cgroup >= 0 && p.seen == 0 && p.at != 0 }

func (p *part) close(k kernel) {
	for i, fd := range p.fds {
		if fd >= 0 {
			k.close(fd)
			p.fds[i] = -1
		}
	}
	p.leader = -1
}

// scale is n * enabled / running, rounded: what would have been counted had
// the counter run all the time it was enabled.
func scale(n, enabled, running uint64) uint64 {
	if running == 0 || running >= enabled {
		return n
	}
	hi, lo := bits.Mul64(n, enabled)
	lo, carry := bits.Add64(lo, running/2, 0)
	if hi += carry; hi >= running {
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, running)
	return q
}
