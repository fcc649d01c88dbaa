// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"rezolus/internal/config"
	"rezolus/internal/follow"
	"rezolus/internal/hindsight"
	"rezolus/internal/metric"
	"rezolus/internal/query"
	"rezolus/internal/store"
	"rezolus/internal/web"
)

// remote keeps the ring of an agent elsewhere. An agent that is away is waited
// for, for ever.
type remote struct {
	config *config.Follower
	source *url.URL // of the agent
	access access   // to it
	log    *slog.Logger
	rings  *rings
	keeper *hindsight.Keeper
	run    atomic.Pointer[metric.Run] // of the last tick; nil: none yet
	away   atomic.Pointer[string]     // why it is not followed; nil: it is
}

// runRemote is `rezolus hindsight CONFIG`.
func runRemote(ctx context.Context, path string) error {
	c, err := config.ReadFollower(path)
	if err != nil {
		return usage{err}
	}
	source, _ := url.Parse(c.General.Source) // is checked
	level, _ := c.Log.SlogLevel()            // is checked, too
	r := &remote{config: c, source: source, access: access{Access: c.General.Access, section: "general"},
		log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))}
	if err := r.access.understand(); err != nil {
		return err
	}
	r.rings = newRings(c.Ring(), r.log, remoteRing{meta: map[string]string{"source": source.Redacted()},
		absent: "hindsight did not run", hole: "the agent could not be followed"})
	r.keeper = r.rings.Keepers[0]
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	if c.General.Listen != "" {
		server, err := secure(r.server(), "general.web_config", c.General.WebConfig)
		if err != nil {
			return err
		}
		listener, err := listen(c.General.Listen)
		if err != nil {
			return err
		}
		go func() {
			served <- serveUntil(ctx, server, listener)
			stop()
		}()
		fmt.Printf("rezolus hindsight %s: %s://%s/\n", version, server.scheme(), listener.Addr())
	} else {
		served <- nil
	}
	r.rings.onHangup(ctx)
	within(ctx, 5*time.Second, func() { r.follow(ctx) })
	stop()
	return errors.Join(r.rings.close(), <-served)
}

// follow keeps what the agent ticks until the context ends. What its ring has
// since the last tick of ours is asked for first.
func (r *remote) follow(ctx context.Context) {
	s := follow.Await(ctx, follow.Options{URL: r.source, Interval: time.Duration(r.config.General.Interval), After: r.keeper.Open(),
		Client: r.access.client(followPatience), Compress: !loopback(r.source), State: r.follows})
	defer s.Close()
	for {
		err := r.take(&feed{stream: s})
		if ctx.Err() != nil {
			return
		}
		r.follows(err)
		s.Restart() // what it brought cannot be read
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// follows takes in that the agent is followed (nil) or not, and says it once.
func (r *remote) follows(err error) {
	source := r.source.Redacted()
	if err == nil {
		if r.away.Swap(nil) != nil {
			r.log.Info("the agent is followed again", "agent", source)
		}
		return
	}
	reason := err.Error()
	var h hinted
	if errors.As(r.access.explain(source, err), &h) {
		reason += "; " + h.hint
	}
	if r.away.Swap(&reason) == nil {
		r.log.Warn("the agent cannot be followed; it is tried again", "agent", source, "error", reason)
	}
}

// feed is a stream as a decoder reads it: one across all connections.
type feed struct {
	stream *follow.Stream
	rest   []byte
	headed bool
	gap    *store.Gap // before the tick that is being read
}

func (f *feed) Read(b []byte) (int, error) {
	if !f.headed {
		f.headed, f.rest = true, store.Header()
	}
	if len(f.rest) == 0 {
		t, err := f.stream.Next()
		if err != nil {
			return 0, err
		}
		f.rest, f.gap = t.Raw, t.Gap
	}
	n := copy(b, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// take keeps what a stream brings.
func (r *remote) take(f *feed) error {
	d := store.NewDecoder(f)
	for {
		s, err := d.Next()
		if err != nil {
			return err
		}
		for _, g := range d.Gaps() { // the agent's own
			r.keeper.Break(g.Reason)
		}
		if f.gap != nil {
			r.keeper.Break(f.gap.Reason)
		}
		r.keeper.Put(s)
		r.run.Store(s.Run)
		for _, e := range d.Events() {
			if err := r.rings.Event(e); err != nil {
				r.log.Warn("an event was not kept", "event", e.Text, "error", err)
			}
		}
	}
}

// remoteStatus is /status of a follower.
type remoteStatus struct {
	Version string `json:"version"`
	Source  string `json:"source"`
	// Following tells whether ticks come; Reason why not.
	Following bool               `json:"following"`
	Reason    string             `json:"reason,omitempty"`
	Hindsight []hindsight.Status `json:"hindsight"`
}

func (r *remote) status() remoteStatus {
	s := remoteStatus{Version: version, Source: r.source.Redacted(), Following: r.run.Load() != nil, Hindsight: r.rings.Status()}
	if why := r.away.Load(); why != nil {
		s.Following, s.Reason = false, *why
	}
	return s
}

// server serves the ring as an agent serves its own.
func (r *remote) server() *http.Server {
	interval := time.Duration(r.config.General.Interval)
	reader := r.rings.reader(nil)
	return newServer(web.New(web.Options{
		Page: func() web.Page {
			p := web.Page{Mode: web.Live, Version: version, Interval: interval}
			if run := r.run.Load(); run != nil {
				p.Host, p.Kernel = run.Host, run.Kernel
			}
			p.First, p.Last = reader.Bounds()
			return p
		},
		API:    query.API(query.New(query.Options{Lookback: lookback(interval)}), reader, buildInfo()),
		Status: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, r.status()) }),
		Others: r.rings.Handlers(),
		Listen: r.config.General.Listen,
	}))
}
