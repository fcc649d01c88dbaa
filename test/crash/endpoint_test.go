// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

// TestAnAgentIsReplaced kills an agent while it is recorded, with and without a
// ring, and starts another version with other metrics in its place.
func TestAnAgentIsReplaced(t *testing.T) {
	newer := build(t, "2.0.0")
	for name, ring := range map[string]bool{"with a ring": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			config, at, keeps := filepath.Join(dir, "agent.toml"), address(t), ""
			if ring {
				keeps = filepath.Join(dir, "ring")
			}
			configure(t, config, at, keeps, 20*time.Millisecond, few)
			a := startAgent(t, rezolus(t), config)
			file := filepath.Join(dir, "x.rzr")
			r := launch(t, rezolus(t), "record", "-i", "20ms", "--url", a.url, "-o", file)
			await(t, "ticks are recorded", func() bool { return ticksOf(file) > 30 })
			before := ticksOf(file)
			a.kill()
			configure(t, config, at, keeps, 20*time.Millisecond, few+"[samplers.cpu_cores]\nenabled = true\n[samplers.syscall_counts]\nenabled = true\n")
			startAgent(t, newer, config)
			await(t, "the newer one is recorded", func() bool { return ticksOf(file) > before+50 })
			r.end()
			d := describe(t, file)
			if len(d.Runs) != 2 || d.Runs[0].Version != "1.0.0" || d.Runs[1].Version != "2.0.0" || !d.Closed {
				t.Errorf("runs %+v, closed %v", d.Runs, d.Closed)
			}
			if len(d.Gaps) != 1 || d.Gaps[0].Reason != "the agent was restarted" || d.Gaps[0].Ticks == 0 {
				t.Errorf("gaps %+v", d.Gaps)
			}
			// What both have goes on, and what is new is there since.
			if got := sources(t, file); got[0]["cpu_cores"] || !got[1]["cpu_cores"] || !got[0]["cpu_usage"] || !got[1]["cpu_usage"] {
				t.Errorf("metrics by run: %v", got)
			}
			if due := uint64(d.End-d.Start)/uint64(d.Every) + 1; d.Ticks+d.Missed != due {
				t.Errorf("%d ticks and %d missed in the time of %d", d.Ticks, d.Missed, due)
			}
		})
	}
}

// ticksOf is how many ticks a recording has so far.
func ticksOf(path string) uint64 {
	rec, err := store.Open(vfs.OS, path)
	if err != nil {
		return 0 // it is not there yet
	}
	defer rec.Close()
	return rec.Info().Ticks
}

// sources are the names of the metrics of each run of a recording.
func sources(t *testing.T, path string) (all [2]map[string]bool) {
	t.Helper()
	rec, err := store.Open(vfs.OS, path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	at, runs := -1, map[[16]byte]bool{}
	err = rec.Each(t.Context(), 0, 1<<62, func(s *metric.Snapshot) error {
		if !runs[s.Run.ID] {
			runs[s.Run.ID], at = true, at+1
			all[at] = map[string]bool{}
		}
		for i := range s.Frames {
			for _, e := range s.Frames[i].Schema.Series {
				all[at][e.Desc.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// network stands between a recorder and an agent, and can hang: connections
// are accepted, and nothing comes.
type network struct {
	listener net.Listener
	to       string

	mu   sync.Mutex
	hung bool
	all  []net.Conn
}

func newNetwork(t *testing.T, agent string) *network {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &network{listener: l, to: strings.Trim(strings.TrimPrefix(agent, "http://"), "/")}
	t.Cleanup(func() {
		l.Close()
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, c := range n.all {
			c.Close()
		}
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go n.carry(c)
		}
	}()
	return n
}

func (n *network) hang(yes bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hung = yes
}

func (n *network) hangs() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hung
}

// carry carries bytes both ways. What comes while it hangs is gone, and with it
// the connection, which nobody is told.
func (n *network) carry(c net.Conn) {
	n.mu.Lock()
	n.all = append(n.all, c)
	n.mu.Unlock()
	if n.hangs() {
		return
	}
	agent, err := net.Dial("tcp", n.to)
	if err != nil {
		c.Close()
		return
	}
	defer agent.Close()
	go func() { _, _ = io.Copy(agent, c) }()
	buf := make([]byte, 64<<10)
	for {
		k, err := agent.Read(buf)
		if n.hangs() {
			return
		}
		if _, werr := c.Write(buf[:k]); err != nil || werr != nil {
			c.Close()
			return
		}
	}
}

// TestANetworkThatHangs: a recorder that hears nothing tries again and gets what
// it missed; one that hears of another endpoint meanwhile goes on.
func TestANetworkThatHangs(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "agent.toml")
	configure(t, config, "127.0.0.1:0", "", 20*time.Millisecond, few)
	a := startAgent(t, rezolus(t), config)
	n := newNetwork(t, a.url)
	alone, both := filepath.Join(dir, "alone.rzr"), filepath.Join(dir, "both.rzr")
	url := "http://" + n.listener.Addr().String()
	one := launch(t, rezolus(t), "record", "-i", "20ms", "--url", url, "-o", alone)
	two := launch(t, rezolus(t), "record", "-i", "20ms", "--endpoint", url+",source=hung", "--endpoint", strings.TrimSuffix(a.url, "/")+",source=well", "-o", both)
	await(t, "both record", func() bool { return ticksOf(alone) > 30 && ticksOf(both) > 30 })
	n.hang(true)
	had := ticksOf(both)
	// It goes on after two seconds without the one that hangs.
	await(t, "the other endpoint is recorded", func() bool { return ticksOf(both) > had+800 })
	n.hang(false)
	stopped := ticksOf(alone)
	await(t, "it is heard again", func() bool { return ticksOf(alone) > stopped+50 })
	await(t, "it is heard again in the other", func() bool { return events(t, both, " is read again") })
	one.end()
	two.end()
	d := describe(t, alone)
	// The agent still has what was not heard, in memory; what it was too late
	// for is missing.
	if due := uint64(d.End-d.Start)/uint64(d.Every) + 1; d.Ticks+d.Missed < due || d.Ticks < stopped+400 {
		t.Errorf("%d ticks and %d missed in the time of %d, %d before it hung; gaps %+v", d.Ticks, d.Missed, due, stopped, d.Gaps)
	}
	if !events(t, both, " cannot be read: ") {
		t.Error("no event says that one of two endpoints hangs")
	}
}

// events reports whether an event of a recording has that in its text.
func events(t *testing.T, path, text string) bool {
	t.Helper()
	_, info := read(t, path)
	for _, e := range info.Events {
		if strings.Contains(e.Text, text) {
			return true
		}
	}
	return false
}
