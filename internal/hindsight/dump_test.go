// SPDX-License-Identifier: Apache-2.0

package hindsight

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rezolus/internal/ring"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

// slow is a client that takes nothing after the header until it is let go, or
// goes away then.
type slow struct {
	*httptest.ResponseRecorder
	asked chan struct{} // closed when something is to be written
	gate  chan error
	off   bool
}

func (s *slow) Write(b []byte) (int, error) {
	if !s.off {
		s.off = true
		close(s.asked)
		if err := <-s.gate; err != nil {
			return 0, err
		}
	}
	return s.ResponseRecorder.Write(b)
}

// TestSlowClients: while one takes a dump the ring turns; it gets what there
// was, and what the ring let go meanwhile is gone when it has it, or went away.
func TestSlowClients(t *testing.T) {
	for name, end := range map[string]error{"takes it": nil, "goes away": syscall.ECONNRESET} {
		dir := t.TempDir()
		w := newWorld(t)
		k := New(Options{Name: "main", Ring: ring.Options{Dir: dir, Interval: time.Second, Segment: 10 * time.Second, Age: 100 * time.Second}})
		for range 100 {
			k.Put(w.tick())
		}
		s := &Server{Keepers: []*Keeper{k}}
		client := &slow{httptest.NewRecorder(), make(chan struct{}), make(chan error), false}
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Handlers()["GET /dump"].ServeHTTP(client, httptest.NewRequest("GET", "/dump", nil))
		}()
		<-client.asked
		first, _ := k.open.Load().Bounds()
		for now := first; now < first+100*second; now, _ = k.open.Load().Bounds() {
			k.Put(w.tick())
		}
		const oldest = "000000000000."
		there := func() bool {
			names, err := vfs.OS.List(dir)
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, oldest) })
		}
		if !there() {
			t.Errorf("%s: the oldest file went while it was sent", name)
		}
		client.gate <- end
		<-done
		if there() {
			t.Errorf("%s: the oldest file stays when it was sent", name)
		}
		if s := k.Status(); s.Lost != 0 || s.Errors != 0 {
			t.Errorf("%s: the ring lost %d ticks: %s", name, s.Lost, s.Reason)
		}
		d, n := store.NewDecoder(client.Body), 0
		_, err := d.Next()
		for ; err == nil; _, err = d.Next() {
			n++
		}
		if end == nil && (n != 100 || !d.Closed() || err != io.EOF) || end != nil && client.Body.Len() > 0 {
			t.Errorf("%s: %d ticks: %v", name, n, err)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestDumpLeavesTheReserve: a dump into a file that would have the ring drop
// its oldest ticks is refused with what to do; one over HTTP takes no space.
func TestDumpLeavesTheReserve(t *testing.T) {
	s, mux, dumps, _ := server(t)
	full := vfs.NewFaulty(vfs.OS)
	s.Dumps.fs = full
	full.SetSpace(s.Keepers[0].Status().Reserve + 100)
	for s.Keepers[0].Status().Reserve == 0 { // it is looked at every second
		time.Sleep(time.Millisecond)
		full.SetSpace(s.Keepers[0].Status().Reserve + 100)
	}
	w := call(mux, "POST", "/dump/file", "")
	if w.Code != http.StatusInsufficientStorage || !strings.Contains(w.Body.String(), "rezolus hindsight dump -o FILE") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if names, _ := vfs.OS.List(dumps); len(names) != 0 {
		t.Errorf("files %q", names)
	}
	if w := call(mux, "GET", "/dump", ""); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestDumpCleansUp takes away what a crash left of a dump, and nothing else.
func TestDumpCleansUp(t *testing.T) {
	s, _, dumps, _ := server(t)
	if err := os.Mkdir(dumps, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hindsight-20260102T030406Z.rzr" + store.Unfinished, "mine.rzr", "hindsight-notes.txt"} {
		if err := os.WriteFile(filepath.Join(dumps, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Dumps.Take(context.Background(), s.Keepers[0], Range{math.MinInt64, math.MaxInt64})
	if err != nil {
		t.Fatal(err)
	}
	names, err := vfs.OS.List(dumps)
	if want := []string{filepath.Base(got.Path), "hindsight-notes.txt", "mine.rzr"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("files %q, want %q: %v", names, want, err)
	}
	if size, err := os.Stat(got.Path); err != nil || size.Size() != got.Bytes || got.Ticks != 100 || got.Range.To-got.Range.From != 99*second {
		t.Errorf("%+v: %v", got, err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Dumps.Take(ended, s.Keepers[0], Range{math.MinInt64, math.MaxInt64}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want Canceled", err)
	}
	if again, err := vfs.OS.List(dumps); err != nil || !slices.Equal(again, names) {
		t.Errorf("files %q, want %q: %v", again, names, err)
	}
}
