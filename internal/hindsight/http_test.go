// SPDX-License-Identifier: Apache-2.0

package hindsight

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rezolus/internal/ring"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

// server has a ring of 100 ticks in files of 20, on the real file system.
func server(t *testing.T) (s *Server, mux *http.ServeMux, dumps string, first int64) {
	t.Helper()
	dir := t.TempDir()
	w := newWorld(t)
	k := New(Options{Name: "main", Ring: ring.Options{Dir: filepath.Join(dir, "ring"), Interval: time.Second, Segment: 20 * time.Second}})
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	first = w.s.Wall + second
	for range 100 {
		k.Put(w.tick())
	}
	dumps = filepath.Join(dir, "dumps")
	s = &Server{Keepers: []*Keeper{k}, Dumps: NewDumps(vfs.OS, dumps, 3, 1<<30)}
	mux = http.NewServeMux()
	for pattern, h := range s.Handlers() {
		mux.Handle(pattern, h)
	}
	return s, mux, dumps, first
}

func call(mux http.Handler, method, target, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	return w
}

// TestDumpIsWhatWasAskedFor asks for ranges and counts their ticks.
func TestDumpIsWhatWasAskedFor(t *testing.T) {
	_, mux, dumps, first := server(t)
	for query, want := range map[string]uint64{
		"":         100,
		"last=10s": 10,
		"last=1s":  1,
		"last=1h":  100,
		"start=" + stamp(first+5*second) + "&end=" + stamp(first+9*second): 5,
		"start=" + stamp(first+90*second):                                  10,
		"end=" + stamp(first):                                              1,
		"ring=main&last=30s":                                               30,
	} {
		w := call(mux, "GET", "/dump?"+query, "")
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
			continue
		}
		d, n := store.NewDecoder(w.Body), uint64(0)
		var err error
		for err == nil {
			if _, err = d.Next(); err == nil {
				n++
			}
		}
		if n != want || err != io.EOF || !d.Closed() {
			t.Errorf("%s: %d ticks, want %d; %v", query, n, want, err)
		}
	}
	if names, _ := vfs.OS.List(dumps); len(names) != 0 {
		t.Errorf("what was sent stays: %v", names)
	}
}

func TestDumpRefused(t *testing.T) {
	_, mux, _, _ := server(t)
	for query, want := range map[string]int{
		"last=x":                http.StatusBadRequest,
		"last=0s":               http.StatusBadRequest,
		"last=1s&start=1":       http.StatusBadRequest,
		"start=9&end=8":         http.StatusBadRequest,
		"start=yesterday":       http.StatusBadRequest,
		"end=1.0000000001":      http.StatusBadRequest,
		"ring=other":            http.StatusBadRequest,
		"start=1&end=2":         http.StatusNotFound,
		"start=-1":              http.StatusBadRequest,
		"start=99999999999999":  http.StatusBadRequest,
		"start=1e3":             http.StatusBadRequest,
		"start=1700000000&x=%z": http.StatusOK,
	} {
		if w := call(mux, "GET", "/dump?"+query, ""); w.Code != want {
			t.Errorf("%s: %d, want %d: %s", query, w.Code, want, w.Body)
		}
	}
}

// TestDumpFiles: names by time, and no more files than there may be.
func TestDumpFiles(t *testing.T) {
	s, mux, dumps, _ := server(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s.Dumps.now = func() time.Time { return at }
	for n := range 5 {
		w := call(mux, "POST", "/dump/file?last=7s", "")
		var got Dumped
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Ticks != 7 || got.Range.To-got.Range.From != 6*second {
			t.Fatalf("dump %d: %d %s", n, w.Code, w.Body)
		}
		if n > 0 {
			at = at.Add(time.Second)
		}
	}
	names, err := vfs.OS.List(dumps)
	if want := []string{"hindsight-20260102T030406Z.rzr", "hindsight-20260102T030407Z.rzr", "hindsight-20260102T030408Z.rzr"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("dumps %v, want %v", names, want)
	}
	s.Dumps.bytes = 1
	at = at.Add(time.Second)
	all, err := s.TakeAll(t.Context())
	if err != nil || len(all) != 1 || all[0].Ticks != 100 {
		t.Errorf("everything: %+v, %v", all, err)
	}
	if names, _ := vfs.OS.List(dumps); len(names) != 1 {
		t.Errorf("more bytes than there may be: %v", names)
	}
}

// TestOtherSitesCannotPost: a page of another site can have a browser send a
// POST to the loopback.
func TestOtherSitesCannotPost(t *testing.T) {
	_, mux, dumps, _ := server(t)
	for _, path := range []string{"/dump/file", "/events"} {
		for _, header := range [][]string{{"Origin", "http://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}} {
			if w := call(mux, "POST", path, "x", header...); w.Code != http.StatusForbidden {
				t.Errorf("%s with %v: %d", path, header, w.Code)
			}
		}
		if w := call(mux, "GET", path, ""); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: %d", path, w.Code)
		}
	}
	if names, _ := vfs.OS.List(dumps); len(names) != 0 {
		t.Errorf("dumped all the same: %v", names)
	}
}

func TestEvents(t *testing.T) {
	s, mux, _, first := server(t)
	var told []store.Event
	s.Tell = func(e store.Event) { told = append(told, e) }
	for body, want := range map[string]int{
		"":                        http.StatusBadRequest,
		" \n":                     http.StatusBadRequest,
		"two\nlines":              http.StatusBadRequest,
		"\x1b[2J":                 http.StatusBadRequest,
		"\xff":                    http.StatusBadRequest,
		strings.Repeat("x", 4097): http.StatusRequestEntityTooLarge,
	} {
		if w := call(mux, "POST", "/events", body); w.Code != want {
			t.Errorf("%.10q: %d, want %d", body, w.Code, want)
		}
	}
	if w := call(mux, "POST", "/events?time=x", "text"); w.Code != http.StatusBadRequest {
		t.Errorf("time=x: %d", w.Code)
	}
	at := first + 50*second
	if w := call(mux, "POST", "/events?time="+url.QueryEscape(stamp(at)), "déploiement\n"); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	want := []store.Event{{Time: at, Text: "déploiement"}}
	if !slices.Equal(told, want) {
		t.Errorf("told %v", told)
	}
	got, err := s.Dumps.Take(t.Context(), s.Keepers[0], Range{math.MinInt64, math.MaxInt64})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := store.Open(vfs.OS, got.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	if i := rec.Info(); !slices.Equal(i.Events, want) {
		t.Errorf("the ring has %v", i.Events)
	}
}

// TestOff: without rings the interfaces say so.
func TestOff(t *testing.T) {
	s := &Server{}
	mux := http.NewServeMux()
	for pattern, h := range s.Handlers() {
		mux.Handle(pattern, h)
	}
	for _, path := range []string{"/dump", "/dump/file"} {
		method := map[bool]string{true: "POST", false: "GET"}[path == "/dump/file"]
		if w := call(mux, method, path, ""); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "hindsight is off") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := call(mux, "POST", "/events", "x"); w.Code != http.StatusOK {
		t.Errorf("an event for those who record: %d", w.Code)
	}
}

func FuzzParseRange(f *testing.F) {
	for _, s := range []string{"last=15m", "start=1&end=2.5", "start=2026-01-02T03:04:05Z", "last=9999999d", "end=8589934592.999999999"} {
		f.Add(s, int64(1_763_700_000*second))
	}
	f.Fuzz(func(t *testing.T, query string, newest int64) {
		values, err := url.ParseQuery(query)
		if err != nil || newest < 0 {
			return
		}
		r, err := ParseRange(values, newest)
		if err == nil && r.From > r.To {
			t.Errorf("%q: from %d to %d", query, r.From, r.To)
		}
	})
}
