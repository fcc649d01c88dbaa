// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"rezolus/internal/agent"
	"rezolus/internal/export/prom"
	"rezolus/internal/metric"
	"rezolus/internal/query"
	"rezolus/internal/store"
	"rezolus/internal/web"
)

// handler is all that an agent serves.
func (p *player) handler() http.Handler {
	interval := p.in.Info().Interval
	if p.flags.now {
		interval = max(1, time.Duration(float64(interval)/p.flags.speed))
	}
	o := web.Options{
		Page: func() web.Page {
			first, last := p.window.Bounds()
			run := p.in.Info().Runs[0].Run
			return web.Page{Mode: web.Live, Title: p.in.path, Host: run.Host, Kernel: run.Kernel, Version: version,
				First: first, Last: last, Interval: interval, Clock: p.clock()}
		},
		API:     query.API(query.New(query.Options{Lookback: lookback(interval)}), p.window, buildInfo()),
		Metrics: prom.Handler(p.present),
		Stream:  http.HandlerFunc(p.stream),
		Status:  http.HandlerFunc(p.status),
		Listen:  p.flags.listen,
	}
	if text := p.in.metadata()["systeminfo"]; strings.HasPrefix(text, "{") {
		o.System = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(text)) // the client went away: nobody to tell
		})
	}
	return web.New(o)
}

// present is what /metrics shows.
func (p *player) present(context.Context) (*metric.Snapshot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.latest == nil {
		return nil, errors.New("the first tick is not there yet")
	}
	return p.latest, nil
}

// replayStatus is /status: an agent's, and how far the replay is.
type replayStatus struct {
	statusDocument
	Replay struct {
		File  string  `json:"file"`
		Speed float64 `json:"speed"`
		Loop  bool    `json:"loop"`
		At    int64   `json:"at_ns"` // the recording's time
		Start int64   `json:"start_ns"`
		End   int64   `json:"end_ns"`
		Over  bool    `json:"over"`
	} `json:"replay"`
}

func (p *player) status(w http.ResponseWriter, _ *http.Request) {
	d := replayStatus{statusDocument: statusDocument{Status: agent.Status{Version: version, Uptime: time.Since(p.began).Seconds()}}}
	_, d.Replay.End = p.in.Bounds()
	d.Replay.File, d.Replay.Speed, d.Replay.Loop, d.Replay.Start = p.in.path, p.flags.speed, p.flags.loop, p.first
	p.mu.Lock()
	d.Ticks, d.Missed = p.ticks, p.missed
	for f := range p.followers {
		c := agent.ConsumerStatus{Name: f.name, Interval: f.interval.Seconds(), Dropped: f.dropped}
		d.Consumers, d.Dropped = append(d.Consumers, c), d.Dropped+f.dropped
	}
	d.Replay.At, d.Replay.Over = p.at, p.over
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(d) // the client went away: nobody to tell
}

const (
	// replayMailbox is how many ticks a follower may be behind.
	replayMailbox = 256
	// replayFollowers bounds the streams that are open at once.
	replayFollowers = 64
	// replayPatience is how long a follower may take nothing at all.
	replayPatience = 30 * time.Second
)

// replayFollower is one stream. Its fields are the player's, under its lock.
type replayFollower struct {
	name     string
	interval time.Duration // asked for; ticks that are closer are passed over
	ticks    chan *metric.Snapshot
	cell     int64 // of the grid of intervals, of the last tick
	seq      uint64
	dropped  uint64
}

// offer gives the follower a tick, if one is due. It waits for nobody: who is
// behind loses ticks, and sees it by their numbers.
func (f *replayFollower) offer(s *metric.Snapshot) {
	if int64(f.interval) > s.Interval {
		cell := s.Wall / int64(f.interval)
		if f.seq > 0 && cell == f.cell {
			return
		}
		thin := *s
		thin.Interval, thin.Missed, thin.Seq = int64(f.interval), 0, f.seq+1
		f.cell, s = cell, &thin
		f.seq++
	}
	select {
	case f.ticks <- s:
	default:
		f.dropped++
	}
}

// stream serves GET /stream as an agent does (docs/format.md).
func (p *player) stream(w http.ResponseWriter, r *http.Request) {
	f := &replayFollower{name: "stream " + r.RemoteAddr, interval: time.Second, ticks: make(chan *metric.Snapshot, replayMailbox)}
	if text := r.FormValue("interval"); text != "" {
		var err error
		if f.interval, err = time.ParseDuration(text); err != nil || f.interval < agent.MinInterval || f.interval > agent.MaxInterval {
			http.Error(w, fmt.Sprintf("interval %s: want %v to %v", text, agent.MinInterval, agent.MaxInterval), http.StatusBadRequest)
			return
		}
	}
	meta, err := parseMetadata(r.Form["meta"])
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := p.subscribe(f); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer p.unsubscribe(f)
	w.Header().Set("Content-Type", "application/vnd.rezolus.recording")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	send(w, r, f, store.EncoderOptions{Interval: f.interval, Meta: meta})
}

func (p *player) subscribe(f *replayFollower) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.over:
		return errors.New("the replay is over; --loop begins again")
	case len(p.followers) >= replayFollowers:
		return fmt.Errorf("%d streams are open already; close one", replayFollowers)
	}
	p.followers[f] = struct{}{}
	return nil
}

func (p *player) unsubscribe(f *replayFollower) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.followers, f)
}

// send writes the ticks of a follower until one of the two ends.
func send(w http.ResponseWriter, r *http.Request, f *replayFollower, o store.EncoderOptions) {
	control := http.NewResponseController(w)
	write := func(b []byte) error {
		// What cannot have a deadline is no connection that could hang.
		_ = control.SetWriteDeadline(time.Now().Add(replayPatience))
		if _, err := w.Write(b); err != nil {
			return err
		}
		return control.Flush()
	}
	if write(nil) != nil { // the first tick may be an hour away
		return
	}
	encoder := store.NewEncoder(o)
	var buf []byte
	for {
		select {
		case <-r.Context().Done():
			return
		case s, open := <-f.ticks:
			if !open {
				_ = write(encoder.AppendEnd(buf[:0])) // nothing follows
				return
			}
			var err error
			if buf, err = encoder.Append(buf[:0], s); err != nil || write(buf) != nil {
				return // the follower went away, or takes nothing
			}
		}
	}
}
