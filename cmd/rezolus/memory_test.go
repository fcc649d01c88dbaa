// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/store"
)

func TestCodeOf(t *testing.T) {
	entry := func(head, anonymous string) string {
		return head + "\nSize:  8 kB\nRss:  8 kB\nAnonymous:      " + anonymous + " kB\nVmFlags: rd ex\n"
	}
	const inode = " 00000000 fe:00 17                 "
	smaps := entry("00400000-010d8000 r-xp"+inode+"/usr/bin/rezolus", "0") +
		entry("010d8000-01fee000 r--p"+inode+"/usr/bin/rezolus", "0") +
		entry("01fee000-01fef000 r-xp"+inode+"/usr/bin/rezolus", "4") + // a breakpoint
		entry("01fef000-020f8000 rw-p"+inode+"/usr/bin/rezolus", "0") +
		entry("7f0000000000-7f0000001000 r-xp"+inode+"/usr/lib/usr/bin/rezolus", "0") +
		entry("7f0000001000-7f0000002000 r--p"+inode+"/usr/bin/rezolus", "0") +
		entry("7f0000002000-7f0000003000 r-xp 00000000 00:00 0", "0")
	want := []mapping{{0x400000, 0x10d8000}, {0x10d8000, 0x1fee000}, {0x7f0000001000, 0x7f0000002000}}
	if got := codeOf(smaps, "/usr/bin/rezolus"); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// residentFile is how much of its files this process has mapped, in kB.
func residentFile(t *testing.T) int {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "RssFile:")
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// What is forgotten is there again when it is needed, and only that.
func TestForgetCode(t *testing.T) {
	before := residentFile(t)
	forgetCode()
	after := residentFile(t)
	if after > before/2 {
		t.Errorf("%d kB of the program are resident, and %d kB when it is forgotten", before, after)
	}
	t.Logf("%d kB, and then %d kB", before, after)
}

// churning is a source of which every word changes in every tick, and of whose
// series one goes and another comes every hundred ticks.
type churning struct {
	tick   metric.Snapshot
	series []metric.Series
	born   int
}

var churned = &metric.Desc{Name: "things", Kind: metric.Counter, Keys: []string{"id"}}

func (c *churning) birth(at int) {
	c.born++
	c.series[at] = metric.Series{Desc: churned, Values: []string{fmt.Sprint("thing-", c.born)}, Start: c.tick.Wall + 1}
}

func (c *churning) next(t *testing.T) *metric.Snapshot {
	if c.series == nil {
		c.series = make([]metric.Series, 500)
		c.tick = metric.Snapshot{Run: &metric.Run{Host: "here"}, Wall: 1e18, Interval: 1e6, Frames: make([]metric.Frame, 1)}
		for i := range c.series {
			c.birth(i)
		}
	}
	f := &c.tick.Frames[0]
	if c.tick.Seq%100 == 0 {
		c.birth(int(c.tick.Seq/100) % len(c.series))
		schema, err := metric.NewSchema("source", slices.Clone(c.series))
		if err != nil {
			t.Error(err)
		}
		f.Schema = schema
		f.Resize(schema.Words)
	}
	c.tick.Seq++
	c.tick.Wall += 1e6
	c.tick.Mono += 1e6
	f.Begin, f.End = c.tick.Mono, c.tick.Mono
	for i := range f.Values {
		f.Values[i] += uint64(i) + c.tick.Seq%7
	}
	return &c.tick
}

// stream serves as many ticks as come, and then as many more as come then.
func (c *churning) stream(t *testing.T, more <-chan int) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("bye") != "" {
			return
		}
		w.Header().Set("Content-Type", "application/vnd.rezolus.recording")
		e, buf := store.NewEncoder(store.EncoderOptions{Interval: time.Millisecond}), []byte(nil)
		for n := 0; ; {
			for range n {
				var err error
				if buf, err = e.Append(buf[:0], c.next(t)); err != nil {
					t.Error(err)
				}
				_, _ = w.Write(buf) // the recorder may be gone
			}
			_ = http.NewResponseController(w).Flush()
			select {
			case n = <-more:
			case <-r.Context().Done():
				return
			}
		}
	}))
}

// What a recorder keeps in memory is the same after ten times as many ticks.
func TestARecorderDoesNotGrow(t *testing.T) {
	more := make(chan int, 1)
	server := new(churning).stream(t, more)
	defer server.Close()
	p, err := parsePlace(server.URL, false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	path := t.TempDir() + "/x.rzr"
	r := newRecorder(&recordFlags{output: path, every: time.Millisecond, places: []*place{p}})
	parts, err := r.prepare(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx, parts) }()
	ticks := 0
	record := func(n int) {
		more <- n
		for ticks += n; r.tapes[0].ticks.Load() < uint64(ticks); {
			select {
			case err := <-ended:
				t.Fatalf("ended after %d ticks: %v", r.tapes[0].ticks.Load(), err)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	kept := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	// Once a segment was sealed, all is there that sealing takes.
	for sealed := false; !sealed; {
		record(1000)
		f, err := os.Stat(path + ".sealing")
		sealed = err == nil && f.Size() > int64(len(store.Header()))
	}
	short, before := ticks, kept()
	record(9 * short)
	after := kept()
	stop()
	if err := errors.Join(<-ended, r.finish(false)); err != nil {
		t.Fatal(err)
	}
	// It is 0.1 MB now and then, as a segment is on its way.
	if after > before+1<<20 {
		t.Errorf("%d kB are kept after %d ticks, and %d kB after %d", before>>10, short, after>>10, ticks)
	}
	t.Logf("%d kB, and then %d kB", before>>10, after>>10)
}
