// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/http"
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
)

// mailbox is how many ticks a consumer at an interval may be behind: a second
// of them, within bounds.
func mailbox(interval time.Duration) int {
	return int(min(128, max(8, time.Second/interval)))
}

// StreamHandler serves GET /stream?interval=10ms&meta=key%3Dvalue: a recording that goes on as
// long as the follower listens, in the bytes of a file (docs/format.md). A
// follower that is too slow loses ticks, which leaves holes in their numbers.
func (a *Agent) StreamHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		interval := time.Second
		if text := r.FormValue("interval"); text != "" {
			var err error
			if interval, err = time.ParseDuration(text); err != nil {
				http.Error(w, fmt.Sprintf("interval %q: want a duration of %v to %v, such as 10ms or 1s",
					text, MinInterval, MaxInterval), http.StatusBadRequest)
				return
			}
		}
		if a.stats.followers.Add(1) > maxFollowers {
			a.stats.followers.Add(-1)
			http.Error(w, fmt.Sprintf("%d streams are open already; close one", maxFollowers), http.StatusServiceUnavailable)
			return
		}
		defer a.stats.followers.Add(-1)
		s, err := a.Subscribe("stream "+r.RemoteAddr, interval, mailbox(interval))
		if errors.Is(err, errStopped) {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		defer s.Close()
		w.Header().Set("Content-Type", "application/vnd.rezolus.recording")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		a.stream(w, r, s, store.EncoderOptions{Interval: interval, Meta: metadata(r.Form["meta"])})
	})
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

func (a *Agent) stream(w http.ResponseWriter, r *http.Request, s *Subscription, o store.EncoderOptions) {
	control := http.NewResponseController(w)
	send := func(b []byte) error {
		// What cannot have a deadline is no connection that could hang.
		_ = control.SetWriteDeadline(time.Now().Add(patience))
		if _, err := w.Write(b); err != nil {
			return err
		}
		return control.Flush()
	}
	if send(nil) != nil { // the first tick may be an hour away
		return
	}
	encoder := store.NewEncoder(o)
	var buf []byte
	for {
		select {
		case <-r.Context().Done():
			return
		case snapshot, open := <-s.C():
			if !open {
				// The follower is told that this end was meant.
				_ = send(encoder.AppendEnd(buf[:0]))
				return
			}
			var err error
			buf, err = encoder.Append(buf[:0], snapshot)
			s.Release(snapshot)
			if err != nil {
				a.log.Error("stream", "to", r.RemoteAddr, "error", err)
				return
			}
			if send(buf) != nil {
				return // the follower went away, or takes nothing
			}
		}
	}
}
