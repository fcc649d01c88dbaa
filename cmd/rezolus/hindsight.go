// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"rezolus/internal/agent"
	"rezolus/internal/bpf"
	"rezolus/internal/config"
	"rezolus/internal/hindsight"
	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/query"
	"rezolus/internal/ring"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

// rings are the rings of a process, and what it serves of them.
type rings struct {
	hindsight.Server
	log *slog.Logger
}

// remoteRing is what is different for the ring of an agent elsewhere.
type remoteRing struct {
	meta         map[string]string
	absent, hole string // reasons of gaps
	slept        func() time.Duration
}

// newRings makes the keepers a configuration asks for. It touches no disk.
func newRings(c config.Hindsight, log *slog.Logger, of remoteRing) *rings {
	r := &rings{log: log}
	r.Dumps = hindsight.NewDumps(vfs.OS, c.DumpsPath(), c.Keep, int64(c.KeepSize))
	add := func(name, dir string, interval, duration config.Duration, size config.Size) {
		r.Keepers = append(r.Keepers, hindsight.New(hindsight.Options{Name: name, Log: log, Reserve: c.Reserve.Bytes, Slept: of.slept, Hole: of.hole,
			Ring: ring.Options{Dir: dir, Interval: time.Duration(interval), Age: time.Duration(duration), Bytes: int64(size),
				Meta: of.meta, Absent: of.absent}}))
	}
	if !c.Enabled {
		return r
	}
	add("main", c.Path, c.Interval, c.Duration, c.Size)
	if c.Fine.Enabled {
		add("fine", filepath.Join(c.Path, "fine"), c.Fine.Interval, c.Fine.Duration, c.Fine.Size)
	}
	return r
}

// openHindsight makes the agent's rings and the source of their metrics.
func (h *house) openHindsight() {
	h.rings = newRings(h.config.Hindsight, h.log, remoteRing{slept: host.Slept})
	on := h.config.Enabled(hindsight.Sampler)
	if on && len(h.rings.Keepers) > 0 {
		h.sources = append(h.sources, reading{hindsight.NewSource(host.Mono, host.Wall(), h.rings.Keepers...),
			agent.SourceOptions{Every: h.pace(hindsight.Sampler, time.Second)}})
	}
	h.judge(hindsight.Sampler, on, "the agent's own rings", nil)
	if on && len(h.rings.Keepers) == 0 {
		h.others[len(h.others)-1] = bpf.SamplerStatus{Name: hindsight.Sampler, State: bpf.Disabled, Reason: "[hindsight] is off in the configuration"}
	}
}

// follow has the keepers keep what the agent ticks. The goroutines end when
// the agent does; close waits for them, but not for a disk that hangs.
func (r *rings) follow(a *agent.Agent) (wait func(), err error) {
	var putting sync.WaitGroup
	r.Tell = a.Tell
	for _, k := range r.Keepers {
		s := k.Status()
		interval := time.Duration(s.Interval * float64(time.Second))
		// Ten seconds of a disk that stalls, and no more than some 64 ticks.
		sub, err := a.Subscribe("hindsight "+s.Name, interval, max(agent.Depth(interval), int(min(64, 10*time.Second/interval))))
		if err != nil {
			return nil, err
		}
		putting.Go(func() {
			_ = sub.Each(func(s *metric.Snapshot) error { // fails never
				k.Put(s)
				return nil
			})
		})
	}
	return func() { within(context.Background(), 5*time.Second, putting.Wait) }, nil
}

// within waits for f, but no longer than that once the context ended; one that
// cannot end is over.
func within(ctx context.Context, d time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	if ctx.Done() != nil {
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
	}
	select {
	case <-done:
	case <-time.After(d):
	}
}

// keep runs the agent's rings until the context ends and nobody puts any more.
func (h *house) keep(ctx context.Context, a *agent.Agent) (func() error, error) {
	wait, err := h.rings.follow(a)
	if err != nil {
		return nil, err
	}
	h.rings.onHangup(ctx)
	return func() error {
		<-ctx.Done()
		wait()
		return h.rings.close()
	}, nil
}

func (r *rings) close() error {
	var errs []error
	for _, k := range r.Keepers {
		errs = append(errs, k.Close())
	}
	if err := errors.Join(errs...); err != nil {
		r.log.Warn("a ring was not closed well; what was put is there", "error", err)
	}
	return nil
}

// onHangup dumps the rings at every SIGHUP. It also keeps a daemon alive when
// its terminal goes.
func (r *rings) onHangup(ctx context.Context) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangup:
			}
			all, err := r.TakeAll(ctx)
			for _, d := range all {
				r.log.Info("dumped", "path", d.Path, "ticks", d.Ticks, "bytes", d.Bytes)
			}
			if err != nil {
				r.log.Warn("SIGHUP: a ring was not dumped", "error", err)
			}
		}
	}()
}

// reader is what queries read: the window and the ring before it.
func (r *rings) reader(w *store.Window) query.Reader {
	if len(r.Keepers) == 0 {
		return w
	}
	if w == nil {
		return hindsight.NewReader(nil, r.Keepers[0])
	}
	return hindsight.NewReader(w, r.Keepers[0])
}

// past is what there is of the past: a window, whose ticks are an interval
// apart, and the rings.
func (r *rings) past(w *store.Window, interval time.Duration) past {
	p := past{{w, interval}}
	for _, k := range r.Keepers {
		p = append(p, memory{k, time.Duration(math.Round(k.Status().Interval * 1e9))})
	}
	return p
}

// hindsightLine is what people are told of a ring.
func hindsightLine(s hindsight.Status) string {
	seconds := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)).Round(time.Second) }
	line := fmt.Sprintf("ring %s: %v of %v, %d MiB in %s", s.Name, seconds(s.Retained), seconds(s.Lookback), s.Bytes>>20, s.Path)
	if s.Lost > 0 {
		line += fmt.Sprintf(", %d ticks lost", s.Lost)
	}
	if s.Reason != "" {
		line += "; it is " + s.State + ": " + s.Reason
	}
	return line
}
