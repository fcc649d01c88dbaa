// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"rezolus/internal/store"
)

const (
	// maxFollowers bounds the streams that are open at once. Each costs a
	// mailbox, and the encoding of each of its ticks.
	maxFollowers = 64
	// patience is how long a follower may take nothing at all, before it
	// must make place for others.
	patience = 30 * time.Second
	// maxID is the length of the name a follower may give its stream.
	maxID = 64
)

// wish is what a follower asks for.
type wish struct {
	interval time.Duration
	meta     map[string]string
	id       string   // the stream's name: it can be taken up again
	bye      bool     // the stream of that name is not needed any more
	run      [16]byte // the follower has ticks of this run
	since    uint64   // up to this number
	after    int64    // and this time of day, Unix nanoseconds; 0: it has none
	packed   bool     // it takes zstd
}

func parseWish(r *http.Request) (f wish, err error) {
	f.interval = time.Second
	if text := r.FormValue("interval"); text != "" {
		if f.interval, err = time.ParseDuration(text); err != nil {
			return f, fmt.Errorf("interval %q: want a duration of %v to %v, such as 10ms or 1s", text, MinInterval, MaxInterval)
		}
	}
	f.meta, f.id, f.bye = metadata(r.Form["meta"]), r.FormValue("id"), r.FormValue("bye") != ""
	if len(f.id) > maxID {
		return f, fmt.Errorf("id: want at most %d bytes", maxID)
	}
	for _, part := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		f.packed = f.packed || strings.TrimSpace(part) == "zstd"
	}
	if text := r.FormValue("run"); text != "" {
		if n, err := hex.Decode(f.run[:], []byte(text[:min(len(text), 32)])); err != nil || n != len(f.run) || len(text) != 32 {
			return f, fmt.Errorf("run %q: want 32 hexadecimal digits", text)
		}
		var errs [2]error
		f.since, errs[0] = strconv.ParseUint(cmp.Or(r.FormValue("since"), "0"), 10, 63)
		f.after, errs[1] = strconv.ParseInt(cmp.Or(r.FormValue("after"), "0"), 10, 64)
		if err := errors.Join(errs[:]...); err != nil {
			return f, fmt.Errorf("since and after: want a sequence number and Unix nanoseconds: %w", err)
		}
	}
	return f, nil
}

// metadata is what the follower wants to stand in the recording, key=value
// each. A request is bounded, and so are they.
func metadata(pairs []string) map[string]string {
	meta := map[string]string{}
	for _, p := range pairs {
		if key, value, ok := strings.Cut(p, "="); ok {
			meta[key] = value
		}
	}
	return meta
}

// StreamHandler serves GET /stream?interval=10ms&meta=key%3Dvalue: a recording
// that goes on as long as the follower listens, in the bytes of a file
// (docs/format.md). A follower that is too slow loses ticks, which leaves
// holes in their numbers.
//
// A follower that names its stream (id=) may come back within linger, with the
// run and number of its last tick (run=, since=): then the header
// Rezolus-Resumed says "stream", and the records that it does not have follow
// as if nothing had been. Else the stream begins anew; with the time of the
// last tick (after=), the ticks since then come first, as far as the agent
// has them, on the grid of the interval or on a coarser one.
//
// The header Rezolus-Clock is the agent's time of day in Unix nanoseconds.
func (a *Agent) StreamHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, err := parseWish(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		old := a.streams.take(f.id)
		if f.bye {
			a.end(old)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		s, resumed, err := a.openStream(f, old, r.RemoteAddr)
		if err != nil {
			status := http.StatusBadRequest
			if errors.Is(err, errStopped) || errors.Is(err, errFull) {
				status = http.StatusServiceUnavailable
			}
			http.Error(w, err.Error(), status)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "application/vnd.rezolus.recording")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Rezolus-Clock", strconv.FormatInt(a.clock.Wall(), 10))
		if resumed {
			h.Set("Rezolus-Resumed", "stream")
		}
		a.serveStream(w, r, f, s, resumed)
	})
}

var errFull = errors.New("streams are open already; close one")

// openStream takes up the stream a follower had before, or makes a new one.
func (a *Agent) openStream(f wish, old *stream, from string) (s *stream, resumed bool, err error) {
	if old != nil && old.sub.interval == int64(f.interval) && f.run == a.run.ID && old.sent.has(f.since) {
		old.stop, old.left = make(chan struct{}), make(chan struct{})
		return old, true, nil
	}
	a.end(old)
	if a.stats.followers.Add(1) > maxFollowers {
		a.stats.followers.Add(-1)
		return nil, false, fmt.Errorf("%d %w", maxFollowers, errFull)
	}
	sub, err := a.Subscribe("stream "+from, f.interval, Depth(f.interval))
	if err != nil {
		a.stats.followers.Add(-1)
		return nil, false, err
	}
	return &stream{id: f.id, sub: sub, stop: make(chan struct{}), left: make(chan struct{}),
		encoder: store.NewEncoder(store.EncoderOptions{Interval: f.interval, Meta: f.meta, Plain: f.packed})}, false, nil
}

// outlet is a connection to a follower.
type outlet struct {
	w       http.ResponseWriter
	control *http.ResponseController
	pack    *store.Compressor // nil: as it is
	first   []byte            // is sent before the first bytes
}

func newOutlet(w http.ResponseWriter, packed bool) (*outlet, error) {
	o := &outlet{w: w, control: http.NewResponseController(w), first: store.Header()}
	if packed {
		w.Header().Set("Content-Encoding", "zstd")
		var err error
		if o.pack, err = store.NewCompressor(w); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// send sends b, or that there will be an answer.
func (o *outlet) send(b []byte) error {
	// What cannot have a deadline is no connection that could hang.
	_ = o.control.SetWriteDeadline(time.Now().Add(patience))
	if len(b) > 0 {
		if len(o.first) > 0 {
			b, o.first = append(o.first, b...), nil
		}
		var err error
		if o.pack != nil {
			_, err = o.pack.Write(b)
		} else {
			_, err = o.w.Write(b)
		}
		if err != nil {
			return err
		}
	}
	return o.control.Flush()
}

// serveStream sends until the follower goes, or comes back elsewhere.
func (a *Agent) serveStream(w http.ResponseWriter, r *http.Request, f wish, s *stream, resumed bool) {
	out, err := newOutlet(w, f.packed)
	if err != nil {
		a.end(s)
		return
	}
	// Whoever takes the stream over does not wait for a dead connection.
	s.kick = func() { _ = out.control.SetWriteDeadline(time.Unix(1, 0)) }
	a.streams.hold(s)
	err = out.send(nil) // the first tick may be an hour away
	if err == nil && resumed {
		for _, b := range s.sent.after(f.since) {
			err = errors.Join(err, out.send(b))
		}
	}
	begun := resumed
	for err == nil {
		var events chan store.Event // nil until there is a tick for them to follow
		if begun {
			events = s.sub.events
		}
		select {
		case e := <-events:
			err = out.send(s.encoder.AppendEvent(nil, e))
		case <-r.Context().Done():
			err = r.Context().Err()
		case <-s.stop:
			close(s.left)
			return
		case snapshot, open := <-s.sub.C():
			if !open {
				// The follower is told that this end was meant.
				_ = out.send(s.encoder.AppendEnd(nil))
				a.release(s)
				return
			}
			if !begun && f.after != 0 {
				snapshot = a.catchUp(f, s, snapshot, out)
			}
			begun = true
			var b []byte
			if b, err = s.encodeAll(snapshot); err != nil {
				a.log.Error("stream", "to", r.RemoteAddr, "error", err)
				a.release(s)
				return
			}
			if err = out.send(b); err == nil {
				s.rest(r.Context())
			}
		}
	}
	a.park(s) // the follower went away, or takes nothing
}
