// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// wire is a TCP proxy that can be cut.
type wire struct {
	to string
	mu sync.Mutex
	no bool // it takes no connections
	on []net.Conn
}

// wires are those of a script, by their addresses. Scripts run at once.
var wires sync.Map

// newWire puts a wire before a server, until the script ends: wire VARIABLE
// URL. The variable is the URL to use instead.
func newWire(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	w := &wire{to: strings.TrimPrefix(args[1], "http://")}
	address := "http://" + l.Addr().String()
	wires.Store(address, w)
	ts.Setenv(args[0], address)
	ts.Defer(func() {
		l.Close()
		w.cut(true)
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.serve(c)
		}
	}()
}

func (w *wire) serve(c net.Conn) {
	defer c.Close()
	d, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer d.Close()
	w.mu.Lock()
	if w.no {
		w.mu.Unlock()
		return
	}
	w.on = append(w.on, c, d)
	w.mu.Unlock()
	go func() {
		defer d.Close()
		_, _ = io.Copy(d, c) // until one of the two is closed
	}()
	_, _ = io.Copy(c, d)
}

// cut closes what is open, and refuses what comes as long as no.
func (w *wire) cut(no bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.no = no
	for _, c := range w.on {
		c.Close()
	}
	w.on = nil
}

// cutWire cuts a wire for a while: cutwire URL DURATION.
func cutWire(ts *testscript.TestScript, _ bool, args []string) {
	d, err := time.ParseDuration(args[1])
	ts.Check(err)
	w, ok := wires.Load(args[0])
	if !ok {
		ts.Fatalf("there is no wire at %s", args[0])
	}
	w.(*wire).cut(true)
	time.Sleep(d)
	w.(*wire).cut(false)
}

// sameTicks compares a recording with what the agent's own ring has of the
// time: every tick is there, none is marked as missing, and what was read of a
// source is the same: sameticks OWN FILE SOURCE TICKS, which says how many
// there are at least.
func sameTicks(ts *testscript.TestScript, _ bool, args []string) {
	least, err := strconv.Atoi(args[3])
	ts.Check(err)
	r, err := store.Open(osFS, ts.MkAbs(args[1]))
	ts.Check(err)
	defer r.Close()
	first, last := r.Bounds()
	own, have := readTicks(ts, args[0], args[2], first, last), readTicks(ts, args[1], args[2], first, last)
	if len(have) < least {
		ts.Fatalf("%s has %d ticks, want %d", args[1], len(have), least)
	}
	reads, i := 0, 0
	for _, o := range own {
		for i < len(have) && have[i].wall < o.wall {
			i++ // a disk that is busy may have kept it from the ring
		}
		// The first tick of a stream has what was read before it, too.
		if i == len(have) || have[i].wall != o.wall || o.values != nil && !slices.Equal(o.values, have[i].values) {
			ts.Fatalf("%s has no %v of the agent's", args[1], o)
		}
		if o.values != nil {
			reads++
		}
	}
	info := r.Info()
	for _, g := range info.Gaps {
		// Ticks that the agent itself missed, as it was cut off, are nobody's.
		if slices.ContainsFunc(own, func(o readTick) bool { return g.From <= o.wall && o.wall <= g.To }) {
			ts.Fatalf("%s: a gap %+v over ticks that the agent has", args[1], g)
		}
	}
	if len(info.Runs) != 1 || reads < least/20 {
		ts.Fatalf("%s: %d runs, %s was read %d times", args[1], len(info.Runs), args[2], reads)
	}
}

// readTick is a tick, and what it read of a source; nil: nothing.
type readTick struct {
	wall   int64
	values []uint64
}

func readTicks(ts *testscript.TestScript, path, source string, first, last int64) (ticks []readTick) {
	r, err := store.Open(osFS, ts.MkAbs(path))
	ts.Check(err)
	defer r.Close()
	ts.Check(r.Each(context.Background(), first, last, func(s *metric.Snapshot) error {
		t := readTick{wall: s.Wall}
		for _, f := range s.Frames {
			if f.Schema.Source == source {
				t.values = slices.Clone(f.Values)
			}
		}
		ticks = append(ticks, t)
		return nil
	}))
	return ticks
}

// remembered is a memory of ticks at some seconds; after failing seconds it
// fails.
type remembered struct {
	seconds []int64
	fails   bool
}

var errDisk = errors.New("the disk is gone")

func (r remembered) Each(after int64, f func(*metric.Snapshot) error) error {
	for _, at := range r.seconds {
		if at*1e9 > after {
			if err := f(&metric.Snapshot{Wall: at * 1e9}); err != nil {
				return err
			}
		}
	}
	if r.fails {
		return errDisk
	}
	return nil
}

// Of each time the memory is asked that suits the interval; where it does not
// reach, or fails, the next.
func TestThePastIsTheBestThereIs(t *testing.T) {
	window := memory{remembered{seconds: []int64{60, 70, 80}}, 10 * time.Second}
	ring := memory{remembered{seconds: []int64{10, 20, 30, 40, 50, 60, 70, 80}}, 10 * time.Second}
	fine := memory{remembered{seconds: []int64{65, 66, 67, 68, 69, 70, 71}}, time.Second}
	gone := memory{remembered{fails: true}, time.Second}
	for name, c := range map[string]struct {
		past     past
		interval time.Duration
		after    int64
		want     []int64
	}{
		"window":                   {past{window}, 10 * time.Second, 65, []int64{70, 80}},
		"ring before it":           {past{window, ring}, 10 * time.Second, 35, []int64{40, 50, 60, 70, 80}},
		"no finer than asked for":  {past{window, ring, fine}, 20 * time.Second, 45, []int64{50, 60, 70, 80}},
		"as fine as there is":      {past{window, ring, fine}, time.Second, 45, []int64{50, 60, 65, 66, 67, 68, 69, 70, 71, 80}},
		"finer than any":           {past{window, fine}, time.Millisecond, 67, []int64{68, 69, 70, 71, 80}},
		"a disk that fails":        {past{window, gone}, time.Second, 65, []int64{70, 80}},
		"a disk that fails midway": {past{window, memory{remembered{[]int64{66, 67}, true}, time.Second}}, time.Second, 65, []int64{66, 67, 70, 80}},
		"nothing":                  {past{window, ring}, 10 * time.Second, 80, nil},
	} {
		var got []int64
		err := c.past.suited(c.interval).Each(c.after*1e9, func(s *metric.Snapshot) error {
			got = append(got, s.Wall/1e9)
			return nil
		})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v (%v), want %v", name, got, err, c.want)
		}
		stop, n := errors.New("enough"), 0
		err = c.past.suited(c.interval).Each(c.after*1e9, func(*metric.Snapshot) error {
			if n++; n == len(c.want) {
				return stop
			}
			return nil
		})
		if c.want != nil && (!errors.Is(err, stop) || n != len(c.want)) {
			t.Errorf("%s: an error of who reads it ends it after %d as %v", name, n, err)
		}
	}
}

// What may be on its way into a memory is not taken from one that is coarser.
func TestThePastIsNotHurried(t *testing.T) {
	now := time.Now().Unix()
	p := past{{remembered{seconds: []int64{now - 10, now - 1}}, time.Second}, {remembered{seconds: []int64{now - 11}}, time.Millisecond}}
	var got []int64
	err := p.suited(time.Millisecond).Each((now-20)*1e9, func(s *metric.Snapshot) error {
		got = append(got, now-s.Wall/1e9)
		return nil
	})
	if want := []int64{11, 10}; err != nil || !slices.Equal(got, want) {
		t.Errorf("seconds ago: %v (%v), want %v", got, err, want)
	}
}
