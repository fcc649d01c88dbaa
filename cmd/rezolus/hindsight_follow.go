// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"rezolus/internal/config"
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
	log    *slog.Logger
	rings  *rings
	keeper *hindsight.Keeper
	run    atomic.Pointer[metric.Run] // of the last tick; nil: none yet
	last   tickTime
	seq    uint64
	trying atomic.Pointer[string] // why it is not followed; nil: it is
}

// tickTime is when a tick was.
type tickTime struct{ wall, mono int64 }

// runRemote is `rezolus hindsight CONFIG`.
func runRemote(ctx context.Context, path string) error {
	c, err := config.ReadFollower(path)
	if err != nil {
		return usage{err}
	}
	level, _ := c.Log.SlogLevel() // is checked
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	r := &remote{config: c, log: log, rings: newRings(c.Ring(), map[string]string{"source": c.General.Source}, "hindsight did not run", log)}
	r.keeper = r.rings.Keepers[0]
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	if c.General.Listen != "" {
		listener, err := listen(c.General.Listen)
		if err != nil {
			return err
		}
		go func() {
			served <- serveUntil(ctx, r.server(), listener)
			stop()
		}()
		fmt.Printf("rezolus hindsight %s: http://%s/\n", version, listener.Addr())
	} else {
		served <- nil
	}
	r.rings.onHangup(ctx)
	r.follow(ctx)
	stop()
	return errors.Join(r.rings.close(), <-served)
}

// follow follows until the context ends.
func (r *remote) follow(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		err := r.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		if r.trying.Load() == nil || time.Since(began) > time.Minute {
			r.log.Warn("the agent cannot be followed; it is tried again", "agent", r.config.General.Source, "error", err)
		}
		reason := err.Error()
		r.trying.Store(&reason)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// silence is how long an agent may send nothing: it hangs, or the way to it
// does.
func (r *remote) silence() time.Duration {
	return max(10*time.Second, 3*time.Duration(r.config.General.Interval))
}

// stream follows one stream to its end.
func (r *remote) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(r.silence(), func() { cancel(fmt.Errorf("it has sent nothing for %v", r.silence())) })
	defer watchdog.Stop()
	body, err := r.connect(ctx)
	if err == nil {
		defer body.Close()
		err = r.take(store.NewDecoder(body), func() { watchdog.Reset(r.silence()) })
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// connect opens the stream, with what is missing since the last tick first.
func (r *remote) connect(ctx context.Context) (io.ReadCloser, error) {
	values := url.Values{"interval": {time.Duration(r.config.General.Interval).String()}}
	if run := r.run.Load(); run != nil {
		values.Set("run", hex.EncodeToString(run.ID[:]))
		values.Set("since", strconv.FormatUint(r.seq, 10))
		values.Set("after", strconv.FormatInt(r.last.wall, 10))
	}
	u, err := endpoint(r.config.General.Source, "stream", values)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		response.Body.Close()
		return nil, fmt.Errorf("it answers %s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	return response.Body, nil
}

// take keeps what a stream brings.
func (r *remote) take(d *store.Decoder, heard func()) error {
	first := true
	for {
		s, err := d.Next()
		if err == io.EOF {
			return errors.New("it ended")
		}
		if err != nil {
			return err
		}
		heard()
		if run := r.run.Load(); run != nil && run.ID == s.Run.ID && s.Mono <= r.last.mono {
			continue // it has that one
		}
		if first {
			first = false
			if before := r.trying.Swap(nil); before != nil {
				r.log.Info("the agent is followed again", "agent", r.config.General.Source)
				r.keeper.Break("the agent could not be followed")
			}
		}
		r.keeper.Put(s)
		r.run.Store(s.Run)
		r.last, r.seq = tickTime{s.Wall, s.Mono}, s.Seq
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

func (r *remote) status(w http.ResponseWriter, _ *http.Request) {
	s := remoteStatus{Version: version, Source: r.config.General.Source, Following: r.run.Load() != nil, Hindsight: r.rings.Status()}
	if why := r.trying.Load(); why != nil {
		s.Following, s.Reason = false, *why
	}
	writeJSON(w, s)
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
		Status: http.HandlerFunc(r.status),
		Others: r.rings.Handlers(),
		Listen: r.config.General.Listen,
	}))
}
