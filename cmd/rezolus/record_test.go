// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// prometheus serves an endpoint to scrape, until the script ends: prometheus
// VARIABLE. It has a counter, a ratio and a histogram.
func prometheus(ts *testscript.TestScript, neg bool, args []string) {
	var scrapes atomic.Uint64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, "# TYPE requests_total counter\nrequests_total %d\n# TYPE hit_ratio gauge\nhit_ratio 0.375\n"+
			"# TYPE wait_seconds histogram\nwait_seconds_bucket{le=\"0.5\"} 3\nwait_seconds_bucket{le=\"+Inf\"} 4\nwait_seconds_sum 2.5\nwait_seconds_count 4\n",
			scrapes.Add(1))
	}))
	ts.Defer(server.Close)
	ts.Setenv(args[0], server.URL)
}

// hung listens and never answers, until the script ends: hung VARIABLE.
func hung(ts *testscript.TestScript, neg bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	ts.Setenv(args[0], "http://"+l.Addr().String())
}

// another writes the configuration of one more agent: another FILE VARIABLE.
// It reads little, and the variable is its URL.
func another(ts *testscript.TestScript, neg bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	defer l.Close()
	ts.Setenv(args[1], "http://"+l.Addr().String())
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), fmt.Appendf(nil, "[general]\nlisten = %q\ninterval = \"100ms\"\n[hindsight]\nenabled = false\n"+
		"[defaults]\nenabled = false\n[samplers.cpu_usage]\nenabled = true\n[budget]\ncpu = \"100%%\"\nmemory = \"1GiB\"\n", l.Addr()), 0o644))
}

func TestProgressLine(t *testing.T) {
	got := progressLine(12400*time.Millisecond, 500*time.Millisecond, 1240, 50, 123_456, 6_000, 3)
	if want := "12s  1240 ticks  100.0/s  123 kB  12.0 kB/s  3 missed"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPlaces(t *testing.T) {
	for spec, want := range map[string]string{
		"http://h:1": "h:1", "http://h:1/metrics,source=a,role=b": "h:1 a b prometheus", "http://h:1/x": "h:1/x   prometheus",
		"http://h:1,protocol=prometheus": "h:1   prometheus", "https://me:secret@h": "h",
		"ftp://h": "error", "http://h,sauce=a": "error", "http://h,protocol=msgpack": "error",
	} {
		p, err := parsePlace(spec, true)
		got := "error"
		if err == nil {
			got = strings.TrimRight(p.name+" "+p.source+" "+p.role+" "+p.protocol, " ")
		}
		if got != want || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %q (%v), want %q", spec, got, err, want)
		}
	}
}

func TestSeparatePaths(t *testing.T) {
	for _, c := range []struct{ output, source, name, want string }{
		{"d/x.rzr", "a", "h:1", "d/x_a.rzr"}, {"x.parquet", "", "h:1/m", "x_h-1-m.parquet"}, {"x", "../a", "", "x_..-a"},
	} {
		if got := separatePath(c.output, &place{source: c.source, name: c.name}); got != c.want {
			t.Errorf("%v: %s", c, got)
		}
	}
}

// Told to end twice, the recorder ends at once; the rows are all there.
func TestASecondSignalLosesNothing(t *testing.T) {
	dir := t.TempDir()
	// An agent that gives ticks and whose goodbye takes for ever.
	stuck := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("bye") != "" {
			<-stuck
			return
		}
		w.Header().Set("Content-Type", "application/vnd.rezolus.recording")
		_, _ = w.Write(twoTicks(t)) // the recorder may be gone
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	defer close(stuck)
	path := dir + "/x.rzr"
	// testscript.Main has put it into PATH.
	cmd := exec.Command("rezolus", "record", "-i", "10ms", "--url", server.URL, "-o", path)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ticks := func() (n uint64) {
		if r, err := store.Open(osFS, path); err == nil {
			n = r.Info().Ticks
			r.Close()
		}
		return n
	}
	for began := time.Now(); ticks() < 2; time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("nothing was recorded: %s", &said)
		}
	}
	for range 2 {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // two that come at once are one (signal(7))
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(said.String(), "every tick is in "+path) || ticks() != 2 {
		t.Errorf("exit status %d, %d ticks: %s", code, ticks(), &said)
	}
}

// twoTicks are the bytes of a stream.
func twoTicks(t *testing.T) (b []byte) {
	schema, err := metric.NewSchema("one", []metric.Series{{Desc: &metric.Desc{Name: "one", Kind: metric.Counter}}})
	if err != nil {
		t.Error(err)
		return nil
	}
	e := store.NewEncoder(store.EncoderOptions{Interval: 10 * time.Millisecond})
	for n := range int64(2) {
		b, err = e.Append(b, &metric.Snapshot{Run: &metric.Run{ID: [16]byte{1}}, Seq: uint64(n) + 1, Wall: 1e18 + n*1e7, Mono: 1e9 + n*1e7, Interval: 1e7,
			Frames: []metric.Frame{{Schema: schema, Values: []uint64{uint64(n)}}}})
		if err != nil {
			t.Error(err)
		}
	}
	return b
}
