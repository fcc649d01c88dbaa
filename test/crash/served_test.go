// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

// captured is what a real agent sent.
type captured struct {
	ticks []([]byte) // the records of each tick and those before it, in the bytes of a file
	sums  []uint64   // of what is in each
}

// capture follows an agent with all its samplers, a tick a millisecond, until
// it has so many, and so many bytes: a machine at rest has small ones.
func capture(t *testing.T, ticks, size int) *captured {
	t.Helper()
	config := filepath.Join(t.TempDir(), "agent.toml")
	configure(t, config, "127.0.0.1:0", "", time.Second, "")
	p := startAgent(t, rezolus(t), config)
	defer p.end()
	r, err := http.Get(p.url + "stream?interval=1ms")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	c, all := &captured{}, store.Header()
	for records, pending := store.NewRecords(r.Body), []byte(nil); len(c.ticks) < ticks || len(all) < size; {
		rec, err := records.Next()
		if err != nil {
			t.Fatal(err)
		}
		pending = append(pending, rec.Raw...)
		if rec.Type == store.TypeTick {
			c.ticks, all, pending = append(c.ticks, pending), append(all, pending...), nil
		}
	}
	for d := store.NewDecoder(bytes.NewReader(all)); ; {
		s, err := d.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			return c
		}
		c.sums = append(c.sums, sum(s))
	}
}

// sum is a number that depends on all that is in a tick, but not on the order
// of its frames. Each word goes through one step of FNV-1a.
func sum(s *metric.Snapshot) uint64 {
	total := uint64(s.Wall) ^ s.Seq<<32
	for i := range s.Frames {
		f := &s.Frames[i]
		h := binary.NativeEndian.Uint64(f.Schema.Hash[:])
		step := func(v uint64) { h = (h ^ v) * 1099511628211 }
		step(uint64(f.Begin))
		step(uint64(f.End))
		step(f.Lost)
		for _, v := range f.Values {
			step(v)
		}
		total += h
	}
	return total
}

// sums are those of a file.
func sums(t *testing.T, path string) (all []uint64, info store.Info) {
	t.Helper()
	rec, err := store.Open(vfs.OS, path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	err = rec.Each(t.Context(), math.MinInt64, math.MaxInt64, func(s *metric.Snapshot) error {
		all = append(all, sum(s))
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return all, rec.Info()
}

// server sends what was captured to a recorder, one tick at a time: the next
// one when the one before is in the recorder's file. So never more than one
// tick is under way, however slow the machine is, and a recorder that kept
// ticks back would get no more.
type server struct {
	*captured
	path string // of the file

	mu         sync.Mutex
	sent, kept int
}

func serve(t *testing.T, c *captured, path string) (s *server, url string) {
	s = &server{captured: c, path: path}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return s, h.URL
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("bye") != "" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/vnd.rezolus.recording")
	b, size := store.Header(), int64(len(store.Header()))
	for n, tick := range s.ticks {
		s.mu.Lock()
		s.sent = n + 1
		s.mu.Unlock()
		if _, err := w.Write(append(b, tick...)); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush() // where it is gone, the file does not grow
		for b, size = nil, size+int64(len(tick)); ; time.Sleep(20 * time.Microsecond) {
			// While it is sealed at the end it may become smaller.
			if info, err := os.Stat(s.path); err == nil && info.Size() >= size {
				break
			}
			if r.Context().Err() != nil {
				return
			}
		}
		s.mu.Lock()
		s.kept = n + 1
		s.mu.Unlock()
	}
	<-r.Context().Done()
}

// progress is how many ticks were sent, and how many of them seen in the file.
func (s *server) progress() (sent, kept int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent, s.kept
}
