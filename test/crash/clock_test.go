// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

// slow is the interval of ticks where the machine is emulated.
const slow = 100 * time.Millisecond

// pair is an agent with a ring, and a recorder that follows it.
type pair struct {
	t        *testing.T
	agent    *process
	recorder *process
	file     string
}

func startPair(t *testing.T) *pair {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "agent.toml")
	configure(t, config, "127.0.0.1:0", filepath.Join(dir, "ring"), slow, few)
	p := &pair{t: t, agent: startAgent(t, rezolus(t), config), file: filepath.Join(dir, "x.rzr")}
	p.recorder = launch(t, rezolus(t), "record", "-i", slow.String(), "--url", p.agent.url, "-o", p.file)
	p.more(20)
	return p
}

// more waits until so many more ticks are in the recording, and asks the agent
// what it measures now.
func (p *pair) more(ticks uint64) {
	p.t.Helper()
	want := ticks
	for first := true; ; first = false {
		n := uint64(0)
		if rec, err := store.Open(vfs.OS, p.file); err == nil {
			n = rec.Info().Ticks
			rec.Close()
		}
		if first {
			want += n
		}
		if n >= want {
			break
		}
		select {
		case <-p.recorder.ended:
			p.t.Fatalf("the recorder ended: %v\n%s", p.recorder.err, p.recorder.said.String())
		case <-time.After(slow):
		}
	}
	var answer struct {
		Data struct{ Result []any }
	}
	if err := get(p.agent.url+"api/v1/query?query=sum(rate(cpu_usage[1s]))", &answer); err != nil || len(answer.Data.Result) != 1 {
		p.t.Errorf("the agent answers %v: %v", answer.Data.Result, err)
	}
}

// end ends the recording and gets a dump of the ring.
func (p *pair) end() (dump string) {
	p.t.Helper()
	p.recorder.end()
	dump = filepath.Join(p.t.TempDir(), "dump.rzr")
	if !download(p.t, p.agent.url, dump) {
		p.t.Fatal("the ring gives no dump")
	}
	p.agent.end()
	return dump
}

// steps are the changes of a recording's time of day. Its ticks follow each
// other in number and in monotonic time.
func steps(t *testing.T, path string) (all []time.Duration) {
	t.Helper()
	ticks, info := read(t, path)
	for i := 1; i < len(ticks); i++ {
		a, b := ticks[i-1], ticks[i]
		if d := b.mono - a.mono; b.seq != a.seq+1 || b.run != a.run || d <= 0 || d >= int64(2+b.missed)*int64(slow) {
			t.Errorf("%s: after %+v comes %+v", path, a, b)
		}
		if step := time.Duration(b.wall - a.wall - (b.mono - a.mono)); step.Abs() > 10*time.Millisecond {
			all = append(all, step)
		}
	}
	if uint64(len(ticks)) != info.Ticks {
		t.Errorf("%s has %d ticks and says that it has %d", path, len(ticks), info.Ticks)
	}
	return all
}

// sane checks that rates over all of a recording are ones that there can be.
func sane(t *testing.T, path string) {
	t.Helper()
	ticks, _ := read(t, path)
	from, to := int64(math.MaxInt64), int64(0)
	for _, k := range ticks {
		from, to = min(from, k.wall), max(to, k.wall)
	}
	step := max(slow, time.Duration(to-from)/10_000) // an answer has 11,000 points at most
	out := run(t, "query", path, "sum(rate(cpu_usage[1s]))", "--step", step.String(), "--format", "csv",
		"--start", time.Unix(0, from).UTC().Format(time.RFC3339Nano), "--end", time.Unix(0, to).UTC().Format(time.RFC3339Nano))
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(rows) < 5 {
		t.Fatalf("%s: %v: %s", path, err, out)
	}
	for _, row := range rows[1:] {
		// Nanoseconds a second, and clocks that do not agree to the last.
		if v, err := strconv.ParseFloat(row[len(row)-1], 64); err != nil || v < 0 || v > 1.5e9*float64(runtime.NumCPU()) {
			t.Errorf("%s: %v", path, row)
		}
	}
}

// TestTheClockIsSet sets the real clock by an hour both ways while a real agent
// keeps a ring and is recorded.
func TestTheClockIsSet(t *testing.T) {
	if !inVM() {
		t.Skip("it would set the clock of this machine")
	}
	p := startPair(t)
	want := []time.Duration{time.Hour, -time.Hour, -time.Hour, time.Hour}
	for _, by := range want {
		now := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
		if err := unix.ClockSettime(unix.CLOCK_REALTIME, &now); err != nil {
			t.Fatal(err)
		}
		p.more(15)
	}
	dump := p.end()
	for _, path := range []string{p.file, dump} {
		d := describe(t, path)
		if len(d.Damage) > 0 || len(d.Gaps) > 0 || len(d.Runs) != 1 {
			t.Errorf("%s: %+v", path, d)
		}
		got := steps(t, path)
		for i := range got {
			got[i] = got[i].Round(time.Minute)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: its time of day was set by %v, want %v", path, got, want)
		}
		sane(t, path)
	}
	var events []string
	for _, e := range describe(t, dump).Events {
		text, by, _ := strings.Cut(e.Text, " by ")
		d, err := time.ParseDuration(by)
		if err != nil {
			t.Errorf("event %q: %v", e.Text, err)
		}
		events = append(events, fmt.Sprint(text, " ", d.Round(time.Minute)))
	}
	slices.Sort(events) // they come by their times of day
	if want := "[the clock was set ahead 1h0m0s the clock was set ahead 1h0m0s the clock was set back 1h0m0s the clock was set back 1h0m0s]"; fmt.Sprint(events) != want {
		t.Errorf("events %v, want %v", events, want)
	}
}

// TestTheMachineSleeps suspends the machine to memory, from which its clock
// wakes it.
func TestTheMachineSleeps(t *testing.T) {
	if !inVM() {
		t.Skip("it would suspend this machine")
	}
	p := startPair(t)
	const nap = 4 * time.Second
	const alarm = "/sys/class/rtc/rtc0/wakealarm"
	if err := os.WriteFile(alarm, []byte("+4"), 0); err != nil {
		t.Fatal(err)
	}
	before := host.Slept()
	if err := os.WriteFile("/sys/power/state", []byte("mem"), 0); err != nil {
		t.Fatal(err)
	}
	slept := host.Slept() - before
	if slept < nap/2 {
		t.Fatalf("the machine slept %v of %v", slept, nap)
	}
	p.more(15)
	dump := p.end()
	for _, path := range []string{p.file, dump} {
		d := describe(t, path)
		if len(d.Damage) > 0 || len(d.Gaps) != 1 || d.Gaps[0].Reason != "the machine was suspended" {
			t.Fatalf("%s: %+v", path, d)
		}
		// Its devices took a while, too, to go to sleep and to wake.
		g := d.Gaps[0]
		if missing := time.Duration(g.Ticks) * slow; missing < slept-2*slow || missing > slept+10*time.Second || d.Missed < g.Ticks {
			t.Errorf("%s: %d ticks are missing, and the machine slept %v; %d in all", path, g.Ticks, slept, d.Missed)
		}
		ticks, _ := read(t, path)
		// What the first tick after it says that it missed is not in the gap.
		if !slices.ContainsFunc(ticks, func(k tick) bool { return k.wall == g.From-int64(slow) }) ||
			!slices.ContainsFunc(ticks, func(k tick) bool { return k.wall == g.To+int64(1+k.missed)*int64(slow) }) {
			t.Errorf("%s: no ticks on both sides of the gap from %d to %d", path, g.From, g.To)
		}
		if got := steps(t, path); len(got) != 1 || (got[0]-slept).Abs() > slow {
			t.Errorf("%s: its time of day went ahead by %v in %v of sleep", path, got, slept)
		}
		sane(t, path)
	}
}
