// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rezolus/internal/follow"
	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// made is a gatherer of two agents, a and b, at a clock of the test's, which are
// told of by it. What it gives is a list of times, and of who is in each.
type made struct {
	t      *testing.T
	g      *Gatherer
	schema *metric.Schema
	at     int64 // now, on the grid
	first  int64
	most   int // words that waited at once
	walls  []int64
	has    [][2]uint64 // the counters of a and b; 0: not in it
	gaps   []store.Gap
}

const everySecond = int64(time.Second)

// makeGatherer begins now; each tick of an agent has so many words.
func makeGatherer(t *testing.T, words int) *made {
	t.Helper()
	m := &made{t: t}
	series := []metric.Series{{Desc: &metric.Desc{Name: "count", Kind: metric.Counter}, Start: 1}}
	gauge := &metric.Desc{Name: "gauge", Kind: metric.Gauge, Keys: []string{"n"}}
	for len(series) < words {
		series = append(series, metric.Series{Desc: gauge, Values: []string{time.Duration(len(series)).String()}})
	}
	var err error
	if m.schema, err = metric.NewSchema("one", series); err != nil {
		t.Fatal(err)
	}
	m.g, err = New(Options{Interval: time.Second, Run: &metric.Run{Host: "recorder", Started: 1},
		Endpoints: []Endpoint{{Name: "a", Agent: &follow.Options{}}, {Name: "b", Agent: &follow.Options{}}},
		Put: func(s *metric.Snapshot) error {
			var has [2]uint64
			for i, name := range []string{"a", "b"} {
				has[i], _ = value(s, "count", "endpoint", name)
			}
			for _, f := range s.Frames {
				if len(f.Values) == words && words > 10 && (f.Begin != s.Mono || f.End != s.Mono+1) {
					t.Errorf("the tick at %d was read from %d to %d", s.Mono, f.Begin, f.End)
				}
			}
			m.walls, m.has = append(m.walls, s.Wall), append(m.has, has)
			return nil
		},
		Gap: func(g store.Gap) { m.gaps = append(m.gaps, g) }, Event: func(store.Event) {}})
	if err != nil {
		t.Fatal(err)
	}
	m.first = m.g.now() / everySecond * everySecond
	m.at = m.first
	m.g.mono = func() int64 { return m.at - m.g.offset }
	for _, e := range m.g.ends {
		m.g.take(arrival{e: e, up: true})
	}
	return m
}

// send is what the agents with these numbers say of a second; its counter is
// the number of the second.
func (m *made) send(second int64, agents ...int) {
	m.t.Helper()
	for _, n := range agents {
		e := m.g.ends[n]
		s := metric.Snapshot{Run: &metric.Run{ID: [16]byte{byte(n)}}, Seq: uint64(second), Wall: m.first + second*everySecond, Mono: 5 * everySecond, Interval: everySecond,
			Frames: []metric.Frame{{Schema: m.schema, Begin: 5 * everySecond, End: 5*everySecond + 1, Values: make([]uint64, m.schema.Words)}}}
		s.Frames[0].Values[0] = uint64(second)
		err := e.tick(&s, follow.Tick{Tick: store.Tick{Wall: s.Wall, Seq: s.Seq, Interval: s.Interval}}, func(a arrival) {
			a.e = e
			m.g.take(a)
		})
		if err != nil {
			m.t.Fatal(err)
		}
	}
	m.most = max(m.most, m.g.words)
}

// live is the time up to a second, in which agents send their ticks as they are
// due.
func (m *made) live(to int64, agents ...int) {
	m.t.Helper()
	for m.at < m.first+to*everySecond {
		m.at += everySecond
		m.send((m.at-m.first)/everySecond, agents...)
		m.g.due()
	}
}

// check checks that there is each second up to one, once and in order, and with
// a but for those between two, both included.
func (m *made) check(to, from, until int64) {
	m.t.Helper()
	for i, wall := range m.walls {
		second := int64(i) + 1
		want := [2]uint64{uint64(second), uint64(second)}
		if second >= from && second <= until {
			want[0] = 0
		}
		if wall != m.first+second*everySecond || m.has[i] != want {
			m.t.Fatalf("tick %d is at %d s and has %v, want %d and %v", i, (wall-m.first)/everySecond, m.has[i], second, want)
		}
	}
	if len(m.walls) != int(to) || len(m.gaps) > 0 {
		m.t.Errorf("there are %d ticks, want %d; gaps %v", len(m.walls), to, m.gaps)
	}
}

func (m *made) missed(want uint64) {
	m.t.Helper()
	if a := m.g.ends[0].missed; a != want || m.g.Missed() != want || m.g.ends[1].missed != 0 {
		m.t.Errorf("of a %d ticks are missing, of b %d, in all %d; want %d of a", a, m.g.ends[1].missed, m.g.Missed(), want)
	}
}

// TestACutIsWovenIn: of an agent that is away for the better part of a minute
// everything is put where it belongs, however large ticks are, and meanwhile
// they do not take the memory that snapshots take.
func TestACutIsWovenIn(t *testing.T) {
	for _, words := range []int{1, 40_000} {
		m := makeGatherer(t, words)
		m.live(10, 0, 1)
		m.g.take(arrival{e: m.g.ends[0], down: errors.New("the network is unreachable")})
		m.live(60, 1)
		if n := len(m.walls); n != 10 {
			t.Errorf("%d ticks were given before a was back, want 10", n)
		}
		m.g.take(arrival{e: m.g.ends[0], up: true})
		for second := int64(11); second <= 60; second++ {
			m.send(second, 0)
			m.g.due()
		}
		m.live(70, 0, 1)
		m.check(70, 0, -1)
		m.missed(0)
		if words > 1 && (m.g.ends[1].shelf == nil || m.most > shelved+10*words || m.g.words != 0) {
			t.Errorf("%d words waited, and %d still do", m.most, m.g.words)
		}
	}
}

// TestACutThatIsTooLong: after a minute nobody is waited for, and what comes
// then is missing.
func TestACutThatIsTooLong(t *testing.T) {
	m := makeGatherer(t, 1)
	m.live(10, 0, 1)
	m.g.take(arrival{e: m.g.ends[0], down: errors.New("the network is unreachable")})
	m.live(80, 1)
	if n := len(m.walls); n != 80 {
		t.Errorf("%d ticks were given without a, want 80", n)
	}
	m.g.take(arrival{e: m.g.ends[0], up: true})
	for second := int64(11); second <= 80; second++ {
		m.send(second, 0)
		m.g.due()
	}
	m.live(90, 0, 1)
	m.check(90, 11, 80)
	m.missed(70)
}

// TestNobodyWaitsForWhoEnded: an agent that says that it ends has said all.
func TestNobodyWaitsForWhoEnded(t *testing.T) {
	m := makeGatherer(t, 1)
	m.live(10, 0, 1)
	m.g.take(arrival{e: m.g.ends[0], down: fmt.Errorf("at last: %w", follow.ErrEnded)})
	m.g.take(arrival{e: m.g.ends[0], down: errors.New("connection refused")})
	m.live(20, 1)
	m.check(20, 11, 20)
	m.missed(0)
}

// TestACutThatIsTooLarge: where what waits is too large even so, nobody is
// waited for.
func TestACutThatIsTooLarge(t *testing.T) {
	m := makeGatherer(t, 1)
	m.live(10, 0, 1)
	m.g.take(arrival{e: m.g.ends[0], down: errors.New("the network is unreachable")})
	m.live(40, 1)
	m.g.words += pending // others', as it were
	m.g.due()
	m.g.words -= pending
	if n := len(m.walls); n < 38 {
		t.Errorf("%d ticks were given, want those up to two seconds ago", n)
	}
	m.live(50, 1)
	m.check(50, 11, 50)
}

// wire is a TCP proxy that can be cut.
type wire struct {
	net.Listener
	mu   sync.Mutex
	off  bool
	open []net.Conn
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l}
	t.Cleanup(func() {
		l.Close()
		w.cut(true)
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.serve(c, to)
		}
	}()
	return w
}

func (w *wire) serve(c net.Conn, to string) {
	defer c.Close()
	d, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer d.Close()
	w.mu.Lock()
	off := w.off
	w.open = append(w.open, c, d)
	w.mu.Unlock()
	if off {
		return
	}
	go func() { _, _ = io.Copy(d, c); d.Close() }() // until one of the two is closed
	_, _ = io.Copy(c, d)
}

func (w *wire) cut(off bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.off = off
	for _, c := range w.open {
		c.Close()
	}
	w.open = nil
}

// TestARealCut cuts a connection for longer than a tick waits for a scrape. What
// the agent read meanwhile is there.
func TestARealCut(t *testing.T) {
	a, b := start(t, 1, ""), start(t, 2, "")
	w := newWire(t, a.address)
	far := (&machine{address: w.Addr().String()}).endpoint("", "")
	s, stop := gatherHolding(t, hold, 20*time.Millisecond, far, b.endpoint("", ""))
	reads := func() (all []uint64) {
		for i := range s.ticks {
			if n, ok := value(&s.ticks[i], "reads", "endpoint", far.Name); ok {
				all = append(all, n)
			}
		}
		return all
	}
	s.until(t, "the agent", func() bool { return len(reads()) > 20 })
	w.cut(true)
	s.until(t, "its absence", func() bool {
		return slices.ContainsFunc(s.events, func(text string) bool { return strings.Contains(text, "cannot be read") })
	})
	time.Sleep(patience + 500*time.Millisecond) // the cut is the matter
	s.mu.Lock()
	last := s.ticks[len(s.ticks)-1].Wall
	s.mu.Unlock()
	w.cut(false)
	s.until(t, "the agent's return, and ticks after that", func() bool {
		return s.ticks[len(s.ticks)-1].Wall > last+int64(patience)+int64(time.Second) && len(reads()) > 0
	})
	stop()
	all := reads()
	var missing uint64
	for i := range all[1:] {
		if all[i+1] <= all[i] {
			t.Errorf("what the agent read for the %dth time comes after the %dth", all[i+1], all[i])
		}
		missing += all[i+1] - all[i] - 1
	}
	// On a busy machine the agent itself may drop some; the cut was of 125.
	if told, _ := value(&s.last(1)[0], "recorder_endpoint_missed", "endpoint", far.Name); missing > 40 || missing > told {
		t.Errorf("%d ticks are missing, and %d told to be", missing, told)
	}
	for i := 1; i < len(s.ticks); i++ {
		if s.ticks[i].Wall <= s.ticks[i-1].Wall {
			t.Errorf("a tick at %d comes after one at %d", s.ticks[i].Wall, s.ticks[i-1].Wall)
		}
	}
}
