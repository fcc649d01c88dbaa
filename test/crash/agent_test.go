// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rezolus/internal/store"
)

// TestKilledAgent kills the real agent at random moments of its life, again
// and again on the same ring, and looks into the ring each time before the
// next one adopts it. It may have lost one tick, the one under way; a machine
// that stops it between the tick and the ring for longer than a tick is an
// exception.
func TestKilledAgent(t *testing.T) {
	const rings = 4
	binary := rezolus(t)
	var lives, behind atomic.Int64
	t.Run("rings", func(t *testing.T) {
		for n := range rings {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				v := newVictim(t, binary)
				for range max(len(moments), times()/2/rings) {
					v.live()
				}
				v.finish()
				lives.Add(int64(v.lives))
				behind.Add(int64(v.lost[2]))
			})
		}
	})
	if behind.Load() > lives.Load()/50 {
		t.Errorf("%d of %d lives lost more than one tick", behind.Load(), lives.Load())
	}
}

// interval of the ticks of those that are killed.
const interval = 10 * time.Millisecond

// victim is an agent that is killed.
type victim struct {
	t      *testing.T
	binary string
	config string
	ring   string
	starts time.Duration // what a start takes, about

	lives     int
	kept      []tick   // all that the ring had when it was looked into
	gaps      []string // "reason from to" of those
	checked   map[string]bool
	left      map[string]bool // what was not whole, and when
	lost      [3]int          // lives that lost no tick, one, more
	unsealed  int             // lives that were killed amid sealing
	undumped  int             // and amid a dump
	unwritten int             // and before their first tick was kept
}

func newVictim(t *testing.T, binary string) *victim {
	dir := t.TempDir()
	v := &victim{t: t, binary: binary, config: filepath.Join(dir, "agent.toml"), ring: filepath.Join(dir, "ring"),
		starts: 500 * time.Millisecond, checked: map[string]bool{}, left: map[string]bool{}}
	if err := os.MkdirAll(filepath.Join(v.ring, "dumps"), 0o755); err != nil {
		t.Fatal(err)
	}
	configure(t, v.config, "127.0.0.1:0", v.ring, interval, few)
	return v
}

// moments are when a victim is killed; they return what a follower had seen.
var moments = []func(v *victim) (p *process, seen *follower){
	// While it starts, or soon after.
	func(v *victim) (*process, *follower) {
		p := launch(v.t, v.binary, v.config)
		time.Sleep(rand.N(2 * v.starts))
		return p, nil
	},
	// While it goes on.
	func(v *victim) (*process, *follower) {
		p, f := v.start()
		n := rand.IntN(30)
		await(v.t, "ticks come", func() bool { return len(f.seen()) > n })
		time.Sleep(rand.N(interval))
		return p, f
	},
	// While it seals what the one before left.
	func(v *victim) (*process, *follower) {
		left, _ := filepath.Glob(filepath.Join(v.ring, "*.log")) // the pattern is good
		if len(left) == 0 {
			return v.start()
		}
		seals := made(v.t, v.ring, ".sealing")
		p, f := v.start()
		<-seals
		time.Sleep(rand.N(3 * time.Millisecond))
		return p, f
	},
	// While it dumps.
	func(v *victim) (*process, *follower) {
		dumps := made(v.t, filepath.Join(v.ring, "dumps"), "")
		p, f := v.start()
		await(v.t, "ticks come", func() bool { return len(f.seen()) > 2 })
		go func() { // it is cut off
			if r, err := http.Post(p.url+"dump/file", "", nil); err == nil {
				r.Body.Close()
			}
		}()
		<-dumps
		time.Sleep(rand.N(time.Millisecond))
		return p, f
	},
}

func (v *victim) start() (*process, *follower) {
	v.t.Helper()
	began := time.Now()
	p := startAgent(v.t, v.binary, v.config)
	v.starts = time.Since(began)
	return p, followed(v.t, p.url, interval)
}

// live is one life.
func (v *victim) live() {
	v.t.Helper()
	began := time.Now().UnixNano()
	p, f := moments[v.lives%len(moments)](v)
	v.lives++
	if !p.kill() {
		v.t.Fatalf("the agent was not killed: %v\n%s", p.err, p.said.String())
	}
	over := time.Now().UnixNano()
	var seen []int64
	if f != nil {
		<-f.ended
		seen = f.seen()
	}
	v.unsealed += v.newIn(v.ring)
	v.undumped += v.newIn(filepath.Join(v.ring, "dumps"))
	before := len(v.kept)
	v.look()
	v.judge(v.kept[before:], began, over, seen)
}

// newIn counts files of a directory that are not whole, and not known.
func (v *victim) newIn(dir string) (n int) {
	left, _ := filepath.Glob(filepath.Join(dir, "*.sealing")) // the pattern is good
	more, _ := filepath.Glob(filepath.Join(dir, ".*.sealing"))
	for _, path := range append(left, more...) {
		if info, err := os.Stat(path); err == nil && !v.left[path+info.ModTime().String()] {
			v.left[path+info.ModTime().String()] = true
			n++
		}
	}
	return n
}

// look reads all that the ring has. What it had before must be there still.
func (v *victim) look() {
	v.t.Helper()
	names, _ := filepath.Glob(filepath.Join(v.ring, "0*.*"))
	var all []tick
	var gaps []string
	for i, name := range names { // .log comes before .rzr of the same number
		stem, ext, _ := strings.Cut(filepath.Base(name), ".")
		if ext != "log" && ext != "rzr" {
			continue
		}
		if !v.checked[name] {
			if tornEnd(v.t, name) && ext == "rzr" {
				v.t.Errorf("life %d: %s is not whole", v.lives, name)
			}
			v.checked[name] = true // nobody writes it any more
		}
		if i+1 < len(names) && filepath.Base(names[i+1]) == stem+".rzr" {
			continue
		}
		ticks, info := read(v.t, name)
		all = append(all, ticks...)
		for _, g := range info.Gaps {
			gaps = append(gaps, gapText(g))
		}
	}
	if len(all) < len(v.kept) || !slices.Equal(all[:len(v.kept)], v.kept) {
		v.t.Fatalf("life %d: of %d ticks that the ring had, not all are there: %d", v.lives, len(v.kept), len(all))
	}
	v.kept, v.gaps = all, gaps
}

func gapText(g store.Gap) string { return fmt.Sprintf("%s %d %d", g.Reason, g.From, g.To) }

// judge looks at the ticks of one life.
func (v *victim) judge(mine []tick, began, over int64, seen []int64) {
	t := v.t
	t.Helper()
	if len(mine) == 0 {
		v.unwritten++
	}
	there := map[int64]bool{}
	for i, k := range mine {
		there[k.wall] = true
		switch {
		case k.wall < began || k.wall > over || k.wall%int64(interval) != 0:
			t.Errorf("life %d: a tick at %d that cannot be, between %d and %d", v.lives, k.wall, began, over)
		case i > 0 && (k.run != mine[0].run || k.wall-mine[i-1].wall != int64(k.seq-mine[i-1].seq+k.missed)*k.interval):
			t.Errorf("life %d: after tick %+v comes %+v", v.lives, mine[i-1], k)
		case i > 0 && k.seq != mine[i-1].seq+1 && !v.told("the disk did not keep up", mine[i-1].wall, k):
			t.Errorf("life %d: nothing tells why ticks are missing between %d and %d", v.lives, mine[i-1].wall, k.wall)
		}
	}
	if n := len(v.kept) - len(mine); n > 0 && len(mine) > 0 && !v.told("the agent did not run", v.kept[n-1].wall, mine[0]) {
		t.Errorf("life %d: no gap before its first tick at %d; there are %q", v.lives, mine[0].wall, v.gaps)
	}
	last := int64(0)
	if len(mine) > 0 {
		last = mine[len(mine)-1].wall
	}
	lost := 0
	for _, wall := range seen {
		if wall > last {
			lost++
		} else if wall >= mine[0].wall && !there[wall] && !v.covered(wall) {
			t.Errorf("life %d: a follower saw a tick at %d, which is not in the ring", v.lives, wall)
		}
	}
	if len(mine) == 0 {
		return // the ring was not open yet
	}
	v.lost[min(lost, 2)]++
	if lost > 1 {
		t.Logf("life %d: %d ticks of %d were not written yet, %d are", v.lives, lost, len(seen), len(mine))
	}
}

// told reports whether there is a gap from the tick after one to the one
// before another, or before those that the other tells of itself: a machine
// may stop an agent between its beginning and its first tick.
func (v *victim) told(reason string, after int64, before tick) bool {
	g := store.Gap{Reason: reason, From: after + int64(interval), To: before.wall - int64(1+before.missed)*int64(interval)}
	g.To = max(g.From, g.To)
	return slices.Contains(v.gaps, gapText(g))
}

// covered reports whether a gap tells of a tick.
func (v *victim) covered(wall int64) bool {
	for _, text := range v.gaps {
		var from, to int64
		at := strings.LastIndex(text[:strings.LastIndex(text, " ")], " ")
		if _, err := fmt.Sscan(text[at:], &from, &to); err == nil && from <= wall && wall <= to {
			return true
		}
	}
	return false
}

// finish starts the agent once more: a dump has what all lives had.
func (v *victim) finish() {
	t := v.t
	p, _ := v.start()
	want := v.kept
	path := filepath.Join(t.TempDir(), "all.rzr")
	var got []tick
	await(t, "this life's ticks are in a dump", func() bool {
		if !download(t, p.url, path) { // the ring is opened with the first tick
			return false
		}
		got, _ = read(t, path)
		return len(got) > len(want)
	})
	if !slices.Equal(got[:len(want)], want) {
		t.Errorf("a dump does not begin with the %d ticks that the killed agents left", len(want))
	}
	restarts, lives := 0, map[[16]byte]bool{}
	for _, k := range got {
		lives[k.run] = true
	}
	d := describe(t, path)
	for _, g := range d.Gaps {
		if g.Reason == "the agent did not run" {
			restarts++
		}
	}
	if restarts != len(lives)-1 || len(lives)-1+v.unwritten != v.lives {
		t.Errorf("%d lives are in the ring and %d gaps between them; %d were killed, %d of them before a tick", len(lives), restarts, v.lives, v.unwritten)
	}
	p.end()
	t.Logf("%d lives, %d ticks: %d lost none, %d one, %d more; %d were killed before a tick, %d amid sealing, %d amid a dump", v.lives, len(v.kept),
		v.lost[0], v.lost[1], v.lost[2], v.unwritten, v.unsealed, v.undumped)
}

// download gets a dump of all there is, if there is one.
func download(t *testing.T, url, path string) bool {
	t.Helper()
	r, err := http.Get(url + "dump")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode == http.StatusOK {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode == http.StatusOK
}
