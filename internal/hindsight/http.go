// SPDX-License-Identifier: Apache-2.0

package hindsight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"rezolus/internal/config"
	"rezolus/internal/store"
)

// Server are the interfaces of rings over HTTP.
type Server struct {
	Keepers []*Keeper // the first is the one that is meant when none is named
	Dumps   *Dumps
	// Tell is called for every event, after the rings; nil: nobody else
	// wants them.
	Tell func(store.Event)
}

const (
	// maxEvent is the longest line of text of an event, in bytes.
	maxEvent = 4096
	// maxSent is how many dumps are sent at once: each may hold files on the
	// disk that the ring has let go.
	maxSent = 4
	// dumpTime is how long it may take to find what is in a dump, and to
	// write it into a file.
	dumpTime = time.Minute
	// patience is how long a client may take for a mebibyte: one that is
	// slower than that does not hold files for ever.
	patience = 30 * time.Second
)

// Handlers are the handlers of the server by their patterns:
//
//	GET  /dump         a recording of a range, which is downloaded
//	POST /dump/file    the same into a file on the server
//	POST /events       adds an event; the body is its text
//	GET  /hindsight    how the rings fare
//
// A range is last=15m, counted back from the newest tick, or start= and end=,
// Unix seconds or RFC 3339, both inclusive; without any it is everything.
// ring=fine asks for the fine one. What changes something is refused to pages
// of other sites.
func (s *Server) Handlers() map[string]http.Handler {
	same := http.NewCrossOriginProtection()
	sent := make(chan struct{}, maxSent)
	return map[string]http.Handler{
		"GET /dump": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case sent <- struct{}{}:
				defer func() { <-sent }()
				s.send(w, r)
			default:
				http.Error(w, fmt.Sprintf("%d dumps are being sent already; wait for one", maxSent), http.StatusServiceUnavailable)
			}
		}),
		"POST /dump/file": same.Handler(http.HandlerFunc(s.take)),
		"POST /events":    same.Handler(http.HandlerFunc(s.event)),
		"GET /hindsight":  http.HandlerFunc(s.status),
	}
}

// Status is how all rings fare.
func (s *Server) Status() (all []Status) {
	for _, k := range s.Keepers {
		all = append(all, k.Status())
	}
	return all
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) { answer(w, s.Status()) }

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // the client went away: nobody to tell
}

// asked is the ring and the range of a request.
func (s *Server) asked(values url.Values) (*Keeper, Range, error) {
	if len(s.Keepers) == 0 {
		return nil, Range{}, errors.New("no ring is kept: hindsight is off in the configuration")
	}
	k := s.Keepers[0]
	if name := values.Get("ring"); name != "" {
		var names []string
		k = nil
		for _, other := range s.Keepers {
			names = append(names, other.o.Name)
			if other.o.Name == name {
				k = other
			}
		}
		if k == nil {
			return nil, Range{}, fmt.Errorf("ring=%s: there is %s", name, strings.Join(names, " and "))
		}
	}
	r, err := ParseRange(values, k.newest())
	return k, r, err
}

// newest is the time of the newest tick; 0: there is none.
func (k *Keeper) newest() int64 {
	if r := k.open.Load(); r != nil {
		_, last := r.Bounds()
		return last
	}
	return 0
}

// ParseRange reads a range from the parameters of a request. newest is what
// last= is counted back from: so last=10s of ticks a second are ten of them.
func ParseRange(values url.Values, newest int64) (Range, error) {
	r := Range{math.MinInt64, math.MaxInt64}
	last, start, end := values.Get("last"), values.Get("start"), values.Get("end")
	if last != "" {
		d, err := config.ParseDuration(last)
		switch {
		case err != nil:
			return r, fmt.Errorf("last=%s: %w", last, err)
		case start != "" || end != "":
			return r, errors.New("last= and start= or end= are two ways to say it; use one")
		case d <= 0:
			return r, fmt.Errorf("last=%s: want more than nothing", last)
		}
		return Range{newest - int64(d) + 1, newest}, nil
	}
	for _, e := range []struct {
		name, text string
		to         *int64
	}{{"start", start, &r.From}, {"end", end, &r.To}} {
		if e.text == "" {
			continue
		}
		t, err := parseTime(e.text)
		if err != nil {
			return r, fmt.Errorf("%s=%s: %w", e.name, e.text, err)
		}
		*e.to = t
	}
	if r.From > r.To {
		return r, fmt.Errorf("start=%s is after end=%s", start, end)
	}
	return r, nil
}

// parseTime reads Unix seconds, exactly, or RFC 3339.
func parseTime(text string) (int64, error) {
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t.UnixNano(), nil
	}
	whole, fraction, _ := strings.Cut(text, ".")
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || seconds < 0 || seconds > 1<<33 || len(fraction) > 9 {
		return 0, errors.New("want Unix seconds or a time such as 2026-01-02T15:04:05Z")
	}
	ns := uint64(0)
	if fraction != "" {
		if ns, err = strconv.ParseUint(fraction+strings.Repeat("0", 9-len(fraction)), 10, 64); err != nil {
			return 0, errors.New("want Unix seconds or a time such as 2026-01-02T15:04:05Z")
		}
	}
	return seconds*1e9 + int64(ns), nil
}

// refuse answers with what went wrong.
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable
	switch {
	case errors.Is(err, ErrNone):
		status = http.StatusNotFound
	case errors.Is(err, ErrSpace):
		status = http.StatusInsufficientStorage
	}
	http.Error(w, err.Error(), status)
}

// send sends a dump out of the ring's own files.
func (s *Server) send(w http.ResponseWriter, r *http.Request) {
	k, span, err := s.asked(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), dumpTime)
	defer cancel()
	asked, over := context.WithCancel(r.Context())
	defer over()
	type excerpt struct {
		*store.Excerpt
		release func()
	}
	x, err := bounded(ctx, k, func() (excerpt, error) {
		x, release, err := k.Excerpt(ctx, span)
		if err == nil { // nobody may wait for it any more
			context.AfterFunc(asked, release)
		}
		return excerpt{x, release}, err
	})
	if err != nil {
		refuse(w, err)
		return
	}
	defer x.release()
	h := w.Header()
	h.Set("Content-Type", "application/vnd.rezolus.recording")
	h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s%s%s"`, dumpPrefix,
		time.Unix(0, x.Last).UTC().Format("20060102T150405Z"), dumpExt))
	h.Set("Content-Length", strconv.FormatInt(x.Bytes, 10))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Rezolus-Ticks", strconv.FormatUint(x.Ticks, 10))
	control := http.NewResponseController(w)
	// After an error the client sees by the length that it has not all.
	_ = x.Send(w, k.o.FS, func() error {
		// What cannot have a deadline is no connection that could hang.
		_ = control.SetWriteDeadline(time.Now().Add(patience))
		return asked.Err()
	})
}

func (s *Server) take(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxEvent)
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	k, span, err := s.asked(r.Form)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	// Who goes away still gets the file.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), dumpTime)
	defer cancel()
	got, err := bounded(ctx, k, func() (Dumped, error) { return s.Dumps.Take(ctx, k, span) })
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, got)
}

// TakeAll dumps all there is of every ring, each into a file.
func (s *Server) TakeAll(ctx context.Context) (all []Dumped, err error) {
	for _, k := range s.Keepers {
		got, e := s.Dumps.Take(ctx, k, Range{math.MinInt64, math.MaxInt64})
		if e == nil {
			all = append(all, got)
		}
		err = errors.Join(err, e)
	}
	return all, err
}

// event adds an event. Its time is now, or ?time=.
func (s *Server) event(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEvent))
	if err != nil {
		http.Error(w, fmt.Sprintf("an event has at most %d bytes", maxEvent), http.StatusRequestEntityTooLarge)
		return
	}
	e := store.Event{Time: time.Now().UnixNano(), Text: strings.TrimRight(string(body), "\r\n")}
	if text := r.URL.Query().Get("time"); text != "" {
		if e.Time, err = parseTime(text); err != nil {
			http.Error(w, fmt.Sprintf("time=%s: %v", text, err), http.StatusBadRequest)
			return
		}
	}
	if err := checkEvent(e.Text); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := s.Event(e); err != nil {
		refuse(w, err)
		return
	}
	answer(w, map[string]any{"time_ns": e.Time, "text": e.Text})
}

// checkEvent holds an event to one line of text.
func checkEvent(text string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return errors.New("an event needs a text, in the body")
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) || strings.ToValidUTF8(text, "") != text:
		return errors.New("an event is one line of text")
	}
	return nil
}

// Event adds an event to every ring, and tells it. It fails if a ring that
// works cannot keep it; one that does not work at present is none to wait for.
func (s *Server) Event(e store.Event) error {
	if s.Tell != nil {
		s.Tell(e)
	}
	var errs []error
	for _, k := range s.Keepers {
		if err := k.Event(e); err != nil {
			errs = append(errs, fmt.Errorf("ring %s: %w", k.o.Name, err))
		}
	}
	return errors.Join(errs...)
}
