// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestKilledRecord kills the real `rezolus record` at random moments. What it
// gets is what a real agent sent with all samplers on, half as much again as
// makes it seal while it records.
func TestKilledRecord(t *testing.T) {
	const workers = 4
	c := capture(t, 3000, 3<<19)
	for n := range workers {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			r := &recorder{t: t, captured: c, dir: t.TempDir(), starts: 200 * time.Millisecond}
			for r.kills < max(len(recorded), times()/2/workers) {
				r.live(recorded[rand.IntN(len(recorded))])
			}
			t.Logf("%d lives and %d kills: %d lost no tick, %d one; %d were killed before a tick, %d amid sealing, %d with the end of a tick missing",
				r.lives, r.kills, r.lost[0], r.lost[1], r.empty, r.unsealed, r.torn)
		})
	}
}

// recorder is a recorder that is killed. All its lives use one name.
type recorder struct {
	*captured
	t        *testing.T
	dir      string
	starts   time.Duration // what a start takes, about
	lives    int
	kills    int
	lost     [2]int
	empty    int
	unsealed int
	torn     int
}

// recorded are the moments at which a recorder is killed.
var recorded = []struct {
	name, output string
	until        func(r *recorder, p *process, s *server)
}{
	{"as it starts", "x.rzr", func(r *recorder, _ *process, _ *server) { time.Sleep(rand.N(2 * r.starts)) }},
	{"while it records", "x.rzr", func(r *recorder, _ *process, s *server) {
		r.some(s)
		time.Sleep(rand.N(time.Millisecond))
	}},
	{"while it seals what it has so far", "x.rzr", func(r *recorder, _ *process, _ *server) {
		<-made(r.t, r.dir, ".sealing")
		time.Sleep(rand.N(20 * time.Millisecond))
	}},
	{"while it ends", "x.rzr", func(r *recorder, p *process, s *server) { r.interrupt(p, s, 60*time.Millisecond) }},
	{"while it makes Parquet of it", "x.parquet", func(r *recorder, p *process, s *server) { r.interrupt(p, s, 150*time.Millisecond) }},
}

// some waits for some ticks.
func (r *recorder) some(s *server) {
	n := rand.IntN(len(r.ticks) / 4)
	await(r.t, "ticks are recorded", func() bool {
		_, kept := s.progress()
		return kept > n
	})
}

func (r *recorder) interrupt(p *process, s *server, most time.Duration) {
	r.some(s)
	_ = p.cmd.Process.Signal(syscall.SIGINT) // it has not ended
	time.Sleep(rand.N(most))
}

// live is one life.
func (r *recorder) live(m struct {
	name, output string
	until        func(r *recorder, p *process, s *server)
}) {
	t := r.t
	t.Helper()
	output := filepath.Join(r.dir, m.output)
	rows := strings.Replace(output, ".parquet", ".parquet.rzr", 1)
	// What the life before left must be in nobody's way, and is none of ours.
	for _, path := range []string{output, rows} {
		_ = os.Remove(path)
	}
	for _, path := range r.garbage() {
		if err := os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	s, url := serve(t, r.captured, rows)
	began := time.Now()
	p := launch(t, rezolus(t), "record", "-i", "1ms", "--url", url, "-o", output)
	m.until(r, p, s)
	killed := p.kill()
	sent, kept := s.progress()
	r.lives++
	for _, path := range r.garbage() {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(began) {
			r.unsealed++
		}
	}
	if kept > 0 && m.name == recorded[1].name {
		r.starts = min(time.Since(began), time.Second)
	}
	if p.err == nil {
		r.whole(output, kept)
		return
	}
	if !killed {
		t.Fatalf("%s: it ended with %v\n%s", m.name, p.err, p.said.String())
	}
	r.kills++
	r.judge(m.name, output, rows, sent, kept)
}

func (r *recorder) garbage() []string {
	names, _ := filepath.Glob(filepath.Join(r.dir, "*.sealing")) // the pattern is good
	return names
}

// whole checks a recording that was finished before the kill came.
func (r *recorder) whole(output string, kept int) {
	r.t.Helper()
	if d := describe(r.t, output); d.Ticks < uint64(kept) || !d.Closed {
		r.t.Errorf("%s ended well and has %d ticks, %d were seen in it: %+v", output, d.Ticks, kept, d)
	}
}

// judge checks what a killed one left.
func (r *recorder) judge(when, output, rows string, sent, kept int) {
	t := r.t
	t.Helper()
	if _, err := os.Stat(output); err == nil && output != rows {
		r.whole(output, kept) // the kill came behind the rename
		r.lost[0]++
		return
	}
	if _, err := os.Stat(rows); err != nil {
		if kept > 0 {
			t.Errorf("killed %s: %v", when, err)
		}
		r.empty++
		r.lost[sent]++
		return
	}
	if tornEnd(t, rows) {
		r.torn++
	}
	got, info := sums(t, rows)
	if len(got) < kept || len(got) > sent || sent-len(got) > 1 || !slices.Equal(got, r.sums[:len(got)]) || len(info.Gaps) > 0 {
		t.Errorf("killed %s: %d ticks are in the file, %d had been seen in it and %d sent; they are the same: %v; gaps %v", when, len(got), kept, sent,
			slices.Equal(got, r.sums[:min(len(got), len(r.sums))]), info.Gaps)
		return
	}
	r.lost[sent-len(got)]++
	if len(got) == 0 {
		r.empty++
	}
}

// tornEnd checks a file with the real command: nothing is wrong with it, but
// that what was being written when its writer was killed may not be whole,
// which it tells.
func tornEnd(t *testing.T, path string) bool {
	t.Helper()
	out, err := exec.Command(rezolus(t), "recording", "check", "--json", path).Output()
	var found struct {
		Bytes    int64
		Problems []struct {
			Offset, Bytes int64
			Problem       string
		}
	}
	if e := json.Unmarshal(out, &found); e != nil {
		t.Fatalf("check %s: %v: %v\n%s", path, err, e, out)
	}
	switch n := len(found.Problems); {
	case n == 0 && err == nil:
		return false
	case n == 1 && found.Problems[0].Offset+found.Problems[0].Bytes == found.Bytes && strings.Contains(found.Problems[0].Problem, "truncated"):
		return true
	}
	t.Errorf("check %s: %v: %+v", path, err, found.Problems)
	return false
}
