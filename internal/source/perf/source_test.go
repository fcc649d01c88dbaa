// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// Two events on each CPU, as cpu_perf has them, by their configs 0 and 1.
func open(t testing.TB, f *fake, pinned bool) (*Source, error) {
	t.Helper()
	groups := []group{{pinned: pinned, events: sets[0].groups[0].events}}
	s, err := openSource("cpu_perf", f, true, func(online []int) ([]target, error) { return perCPU(t.TempDir(), online, groups), nil })
	if err == nil {
		t.Cleanup(func() { closeAll(t, s, f) })
	}
	return s, err
}

func mustOpen(t testing.TB, f *fake, pinned bool) *Source {
	t.Helper()
	s, err := open(t, f, pinned)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeAll(t testing.TB, r reader, f *fake) {
	t.Helper()
	if err := r.Close(); err != nil || len(f.fds) != 0 {
		t.Errorf("after closing, %d counters are open (%v)", len(f.fds), err)
	}
}

func two(cycles, instructions uint64) map[uint64]uint64 {
	return map[uint64]uint64{0: cycles, 1: instructions}
}

func TestCountsByCPU(t *testing.T) {
	f := newFake("0,2")
	f.say(0, 0, 1000, 1000, two(17, 19))
	f.say(2, 0, 1000, 1000, two(23, 29))
	began := host.Wall()
	s := mustOpen(t, f, true)
	var frame metric.Frame
	expect(t, shown(t, s, &frame), map[string]uint64{
		"cpu_cycles 0": 17, "cpu_instructions 0": 19, "cpu_cycles 2": 23, "cpu_instructions 2": 29,
		"perf_multiplexed cpu_cycles": 0, "perf_multiplexed cpu_instructions": 0})
	if start := frame.Schema.Series[0].Start; start < began || start > host.Wall() {
		t.Errorf("counters began at %d, want when they were opened", start)
	}
	for _, o := range f.fds {
		leads := o.leader < 0
		if pinned := o.attr.Bits&unix.PerfBitPinned != 0; pinned != leads {
			t.Errorf("pinned is %v of a counter that leads: %v", pinned, leads)
		}
		if o.attr.Read_format != readFormat || o.cgroup != -1 || o.attr.Type != unix.PERF_TYPE_HARDWARE {
			t.Errorf("opened %+v", o)
		}
	}
}

func TestMultiplexedCountersAreScaledAndFlagged(t *testing.T) {
	f := newFake("0")
	s := mustOpen(t, f, false)
	var frame metric.Frame
	step := func(enabled, running, cycles, instructions, wantCycles, wantInstructions, wantShare uint64) {
		t.Helper()
		f.say(0, 0, enabled, running, two(cycles, instructions))
		expect(t, shown(t, s, &frame), map[string]uint64{"cpu_cycles 0": wantCycles, "cpu_instructions 0": wantInstructions,
			"perf_multiplexed cpu_cycles": wantShare, "perf_multiplexed cpu_instructions": wantShare})
	}
	step(1000, 250, 100, 10, 400, 40, 750_000) // a quarter of the time
	step(2000, 1250, 600, 60, 900, 90, 0)      // all the time: what it gained is exact
	// A scaled total would now be 600*3000/1250 = 1440, and later fall.
	step(3000, 1250, 600, 60, 900, 90, 1_000_000)  // not at all: nothing is known
	step(4000, 1750, 700, 70, 1300, 130, 750_000)  // 100 in 500 of the 2000 since it ran last
	step(5000, 2750, 1700, 170, 2300, 230, 0)      // exact again
	step(6000, 3083, 1800, 180, 2600, 260, 667000) // 333 of 1000: rounded
}

func TestGroupThatNeverRanIsAbsent(t *testing.T) {
	f := newFake("0-1")
	f.say(0, 0, 1000, 0, two(0, 0))
	f.say(1, 0, 1000, 1000, two(5, 7))
	s := mustOpen(t, f, false)
	var frame metric.Frame
	expect(t, shown(t, s, &frame), map[string]uint64{"cpu_cycles 1": 5, "cpu_instructions 1": 7,
		"perf_multiplexed cpu_cycles": 500_000, "perf_multiplexed cpu_instructions": 500_000})
	before := frame.Schema
	f.say(0, 0, 3000, 1000, two(11, 13))
	f.say(1, 0, 3000, 3000, two(6, 8))
	got := shown(t, s, &frame)
	if got["cpu_cycles 0"] != 33 || got["cpu_instructions 0"] != 39 || frame.Schema == before {
		t.Errorf("once it ran there is %v", got)
	}
}

func TestHotplug(t *testing.T) {
	f := newFake("0-1")
	f.say(0, 0, 10, 10, two(100, 100))
	f.say(1, 0, 10, 10, two(200, 200))
	s := mustOpen(t, f, false)
	var frame metric.Frame
	shown(t, s, &frame)
	starts := []int64{startOf(&frame, "0"), startOf(&frame, "1")}
	opens := f.opens
	f.leave(1, "0")
	f.say(0, 0, 20, 20, two(101, 101))
	got := shown(t, s, &frame)
	if _, there := got["cpu_cycles 1"]; there || got["cpu_cycles 0"] != 101 || len(f.fds) != 2 {
		t.Errorf("CPU 1 went and there is %v, %d counters", got, len(f.fds))
	}
	f.cpus = "0-1"
	f.say(0, 0, 30, 30, two(102, 102))
	f.say(1, 0, 5, 5, two(3, 3))
	got = shown(t, s, &frame)
	if got["cpu_cycles 1"] != 3 || got["cpu_cycles 0"] != 102 || f.opens != opens+2 {
		t.Errorf("CPU 1 came and there is %v after %d opens", got, f.opens-opens)
	}
	if startOf(&frame, "0") != starts[0] || startOf(&frame, "1") <= starts[1] {
		t.Error("CPU 0 counts on and CPU 1 anew, but the starts say otherwise")
	}
}

// passes waits until a group must have seen time pass.
func passes() {
	for end := host.Mono() + 2*standing; host.Mono() < end; {
		time.Sleep(time.Millisecond)
	}
}

// TestCPUThatWasAwayBetweenReads has a CPU that is online at both reads: only
// that time stands still for its counters tells.
func TestCPUThatWasAwayBetweenReads(t *testing.T) {
	f := newFake("0")
	f.frozen = true
	f.say(0, 0, 1000, 1000, two(100, 100))
	s := mustOpen(t, f, false)
	var frame metric.Frame
	shown(t, s, &frame)
	// At once, time need not pass.
	p := s.cells[0].parts[0]
	if err := p.read(f, s.buf, p.at+standing-1); err != nil {
		t.Fatal(err)
	}
	passes()
	if got := shown(t, s, &frame); len(got) != 2 || f.opens != 4 {
		t.Errorf("there is %v after %d opens, want new counters that say nothing yet", got, f.opens)
	}
	f.say(0, 0, 50, 50, two(1, 2))
	if got := shown(t, s, &frame); got["cpu_cycles 0"] != 1 || got["cpu_instructions 0"] != 2 {
		t.Errorf("then there is %v", got)
	}
}

// TestGroupThatFellApart is the same as the kernel has it for groups of several.
func TestGroupThatFellApart(t *testing.T) {
	f := newFake("0-1")
	f.say(0, 0, 10, 10, two(1, 2))
	f.say(1, 0, 10, 10, two(3, 4))
	s := mustOpen(t, f, false)
	var frame metric.Frame
	shown(t, s, &frame)
	f.leave(1, "0-1")
	if got := shown(t, s, &frame); len(got) != 4 || f.opens != 6 {
		t.Errorf("there is %v after %d opens, want new counters of CPU 1 that say nothing yet", got, f.opens)
	}
	f.say(1, 0, 5, 5, two(6, 7))
	if got := shown(t, s, &frame); got["cpu_cycles 1"] != 6 || got["cpu_instructions 1"] != 7 {
		t.Errorf("then there is %v", got)
	}
}

func TestPinnedGroupThatIsPushedOutTakesTurns(t *testing.T) {
	f := newFake("0")
	f.says[spot{0, -1, 0}] = says{end: true}
	s := mustOpen(t, f, true)
	var frame metric.Frame
	shown(t, s, &frame)
	for _, o := range f.fds {
		if o.attr.Bits&unix.PerfBitPinned != 0 {
			t.Error("it is pinned again")
		}
	}
	f.say(0, 0, 100, 50, two(10, 20))
	if got := shown(t, s, &frame); got["cpu_cycles 0"] != 20 || got["perf_multiplexed cpu_cycles"] != 500_000 {
		t.Errorf("there is %v", got)
	}
	// A group that is not pinned has no such end: it is an error.
	f.says[spot{0, -1, 0}] = says{end: true}
	if err := s.Read(&frame); !errors.Is(err, errPushedOut) {
		t.Errorf("error %v, want that of the read", err)
	}
}

func TestReadErrorsCostOnlyTheirCPU(t *testing.T) {
	f := newFake("0-1")
	f.say(0, 0, 10, 10, two(1, 2))
	f.say(1, 0, 10, 10, two(3, 4))
	s := mustOpen(t, f, false)
	var frame metric.Frame
	shown(t, s, &frame)
	f.says[spot{0, -1, 0}] = says{err: unix.EIO}
	f.say(1, 0, 20, 20, two(5, 6))
	got := shown(t, s, &frame)
	if _, there := got["cpu_cycles 0"]; there || got["cpu_cycles 1"] != 5 || len(f.fds) != 2 {
		t.Errorf("CPU 0 fails and there is %v, %d counters", got, len(f.fds))
	}
	f.says[spot{1, -1, 0}] = says{err: unix.EIO}
	if err := s.Read(&frame); !errors.Is(err, unix.EIO) {
		t.Errorf("error %v, want that of the reads", err)
	}
	// They are opened again after a while, from zero.
	f.say(0, 0, 10, 10, two(7, 8))
	f.say(1, 0, 10, 10, two(9, 10))
	for _, c := range s.cells {
		if c.retry == 0 || c.retry > host.Mono()+again {
			t.Errorf("CPU %s is tried again at %d", c.member, c.retry)
		}
		c.retry = 1
	}
	if got := shown(t, s, &frame); got["cpu_cycles 0"] != 7 || got["cpu_cycles 1"] != 9 {
		t.Errorf("then there is %v", got)
	}
}

func TestShortReadIsAnError(t *testing.T) {
	f := newFake("0")
	s := mustOpen(t, f, false)
	s.buf = s.buf[:32] // room for less than the fake writes
	p := s.cells[0].parts[0]
	f.refuse = nil
	if err := p.read(shortKernel{f}, s.buf, 1); err == nil || !strings.Contains(err.Error(), "24 bytes") {
		t.Errorf("error %v, want one that says how much was read", err)
	}
}

type shortKernel struct{ *fake }

func (shortKernel) read(int, []byte) (int, error) { return 24, nil }

func TestEventsThatAProcessorLacksAreLeftOut(t *testing.T) {
	f := newFake("0-1")
	f.refuse = func(o opened) error {
		if o.attr.Config == 0 && o.cpu == 0 {
			return unix.ENOENT // the leader: the next one leads
		}
		return nil
	}
	f.say(0, 1, 10, 10, map[uint64]uint64{1: 5})
	f.say(1, 0, 10, 10, two(6, 7))
	s := mustOpen(t, f, false)
	var frame metric.Frame
	expect(t, shown(t, s, &frame), map[string]uint64{"cpu_instructions 0": 5, "cpu_cycles 1": 6, "cpu_instructions 1": 7,
		"perf_multiplexed cpu_cycles": 0, "perf_multiplexed cpu_instructions": 0})
	opens := f.opens
	shown(t, s, &frame)
	if f.opens != opens {
		t.Error("what the processor lacks is asked for again and again")
	}
}

func TestOpenErrors(t *testing.T) {
	f := func(errno unix.Errno, unsupported bool, says string) {
		t.Helper()
		k := newFake("0-1")
		k.refuse = func(opened) error { return errno }
		_, err := open(t, k, true)
		if !errors.Is(err, errno) || errors.Is(err, source.ErrUnsupported) != unsupported || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: error %v; want one that says %q, unsupported: %v", errno, err, says, unsupported)
		}
		if len(k.fds) != 0 {
			t.Errorf("%v: %d counters stay open", errno, len(k.fds))
		}
	}
	f(unix.ENOENT, true, "no counter")
	f(unix.EOPNOTSUPP, true, "no counter")
	f(unix.ENODEV, true, "no counter")
	f(unix.EINVAL, true, "no counter")
	f(unix.ENOSYS, true, "CONFIG_PERF_EVENTS")
	f(unix.EACCES, false, "perf_event_paranoid")
	f(unix.EPERM, false, "CAP_PERFMON")
	f(unix.EMFILE, false, "LimitNOFILE")
	f(unix.EBUSY, false, "another program")
	f(unix.EIO, false, "open perf event of cpu_cycles on CPU")
}

func TestGroupIsAllOrNothingForWantOfFiles(t *testing.T) {
	f := newFake("0-1")
	f.refuse = func(o opened) error {
		if o.cpu == 1 && o.attr.Config == 1 {
			return unix.EMFILE
		}
		return nil
	}
	f.say(0, 0, 10, 10, two(1, 2))
	s := mustOpen(t, f, false)
	var frame metric.Frame
	got := shown(t, s, &frame)
	if _, there := got["cpu_cycles 1"]; there || len(f.fds) != 2 {
		t.Errorf("there is %v, %d counters", got, len(f.fds))
	}
	f.refuse = nil
	f.say(1, 0, 10, 10, two(3, 4))
	s.cells[1].retry = 1
	if got := shown(t, s, &frame); got["cpu_cycles 1"] != 3 {
		t.Errorf("then there is %v", got)
	}
}

func TestScale(t *testing.T) {
	f := func(n, enabled, running, want uint64) {
		t.Helper()
		if got := scale(n, enabled, running); got != want {
			t.Errorf("%d * %d / %d is %d, want %d", n, enabled, running, got, want)
		}
	}
	f(10, 100, 100, 10)
	f(10, 99, 100, 10) // the clocks of a read may be apart
	f(10, 100, 50, 20)
	f(10, 100, 30, 33)
	f(1<<62, 1<<40, 1<<39, 1<<63)
	f(1<<63, 1<<40, 1<<39, 1<<64-1) // no wrap
	f(0, 100, 1, 0)
	f(5, 100, 0, 5)
}

func TestFakeReadAllocatesNothing(t *testing.T) {
	k := steady{newFake("0-1"), []byte("0-1\n")}
	s, err := openSource("cpu_perf", k, true, func(online []int) ([]target, error) {
		return perCPU(t.TempDir(), online, sets[0].groups), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var frame metric.Frame
	if n := testing.AllocsPerRun(100, func() {
		if err := s.Read(&frame); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations in a read", n)
	}
}

// steady is a fake that allocates nothing itself.
type steady struct {
	*fake
	cpus []byte
}

func (k steady) online() ([]byte, error) { return k.cpus, nil }

func (steady) read(_ int, b []byte) (int, error) {
	now := host.Mono()
	for i, w := range []uint64{2, uint64(now), uint64(now) / 2, uint64(now), uint64(now)} {
		for j := range 8 {
			b[8*i+j] = byte(w >> (8 * j)) // little-endian as all that is built for
		}
	}
	return 40, nil
}
