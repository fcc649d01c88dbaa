// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"rezolus/internal/metric"
	"rezolus/internal/store"
	"rezolus/internal/web"
)

// replayFlags are what `rezolus replay` was asked for.
type replayFlags struct {
	listen, from, webConfig string
	speed                   float64
	loop, now               bool
}

// The speeds of a replay.
const (
	minSpeed = 0.001
	maxSpeed = 1e6
)

func newReplay() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Serve a recording as if it happened now",
		Long: `Serves what an agent serves - the page, the query API, /metrics, /stream and
/status - over a recording that goes on as time does, at a speed of its own. The
query API and the page see a window that fills; /metrics is the present moment;
/stream gives recorders each tick as it comes.

Ticks have the times they were recorded at. With --now they happen now: the first
at the start of the replay, the others as much sooner as the speed is higher, so
that rates are higher, too.

At the end time stands still, unless --loop begins again, as another run of the
agent.`,
		Example: `  rezolus replay x.rzr
  rezolus replay x.rzr --listen :9100 --speed 60
  rezolus replay x.parquet --now --loop
  rezolus replay x.rzr --from +10m --speed 0.1
  rezolus replay x.rzr & rezolus record --url http://127.0.0.1:9100 -d 10s -o y.rzr`,
		Args: exactly(1, "a recording"),
		RunE: func(cmd *cobra.Command, args []string) error { return replay(cmd.Context(), args[0], f) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.listen, "listen", "l", "127.0.0.1:9100", "address to serve at; port 0 takes a free one")
	flags.StringVar(&f.webConfig, "web-config", "", "`file` with TLS and passwords, as the agent's web_config")
	flags.Float64Var(&f.speed, "speed", 1, "how much faster than it was")
	flags.StringVar(&f.from, "from", "", "begin at this `time` of the recording: RFC 3339, Unix seconds, +30s, -30s")
	flags.BoolVar(&f.loop, "loop", false, "begin again at the end")
	flags.BoolVar(&f.now, "now", false, "ticks have the times at which they are replayed")
	return cmd
}

func replay(ctx context.Context, path string, f replayFlags) error {
	if !(f.speed >= minSpeed && f.speed <= maxSpeed) {
		return usage{fmt.Errorf("--speed %v: want %v to %v", f.speed, minSpeed, maxSpeed)}
	}
	in, err := openRecording(ctx, path)
	if err != nil {
		return err
	}
	defer in.Close()
	in.warn(os.Stderr)
	first, last := in.Bounds()
	if in.Info().Ticks == 0 {
		return fmt.Errorf("%s has no ticks", path)
	}
	p := newPlayer(in, f, first)
	if f.from != "" {
		if p.first, err = moment("--from", f.from, first, last); err != nil {
			return err
		}
		if p.first > last {
			return usage{fmt.Errorf("--from %s: %s ends at %s", f.from, path, stamp(last))}
		}
	}
	server, err := secure(newServer(p.handler()), "--web-config", f.webConfig)
	if err != nil {
		return err
	}
	listener, err := listen(f.listen)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s://%s/\n", path, server.scheme(), listener.Addr())
	// The end of the replay is not the server's, but its failure is.
	ctx, stop := context.WithCancel(ctx)
	played := make(chan error, 1)
	go func() {
		err := p.run(ctx)
		if err != nil {
			stop()
		}
		played <- err
	}()
	err = serveUntil(ctx, server, listener)
	stop()
	return errors.Join(err, <-played)
}

// replayMemory is what the window of a replay takes.
const replayMemory = 64 << 20

// player gives the ticks of a recording as time goes.
type player struct {
	in     *opened
	flags  replayFlags
	first  int64 // where it begins
	window *store.Window
	began  time.Time

	mu        sync.Mutex
	latest    *metric.Snapshot // nil: not yet
	at        int64            // the recording's time
	shown     int64            // the time that tick has here
	since     time.Time        // when it came
	ticks     uint64
	missed    uint64
	over      bool
	followers map[*replayFollower]struct{}
}

func newPlayer(in *opened, f replayFlags, first int64) *player {
	return &player{in: in, flags: f, first: first, window: store.NewWindow(replayMemory), began: time.Now(),
		followers: map[*replayFollower]struct{}{}}
}

// run plays until the context ends, or the recording does.
func (p *player) run(ctx context.Context) error {
	defer p.end()
	for round := 0; ; round++ {
		if err := p.once(ctx, round); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if !p.flags.loop {
			fmt.Fprintf(os.Stderr, "%s: the replay is over; its end is still served\n", p.in.path)
			return nil
		}
	}
}

// once plays the recording once.
func (p *player) once(ctx context.Context, round int) error {
	began, position, before := time.Now(), int64(0), p.first
	shift := &shifting{player: p, began: began.UnixNano(), round: round, sources: map[string]*relabelled{}}
	_, last := p.in.Bounds()
	err := p.in.Each(ctx, p.first, last, func(s *metric.Snapshot) error {
		// Where the clock was set back time goes on all the same.
		step := s.Wall - before
		if step < 0 {
			step = s.Interval
		}
		position, before = position+step, s.Wall
		if err := waitUntil(ctx, began.Add(time.Duration(float64(position)/p.flags.speed))); err != nil {
			return err
		}
		out, err := shift.snapshot(s, position)
		if err != nil {
			return err
		}
		return p.publish(out, s.Wall)
	})
	if err != nil {
		return err
	}
	// A recording of one tick must not go round as fast as it can.
	interval := time.Duration(float64(p.in.Info().Interval) / p.flags.speed)
	return waitUntil(ctx, began.Add(time.Duration(float64(position)/p.flags.speed)+max(interval, time.Millisecond)))
}

func waitUntil(ctx context.Context, due time.Time) error {
	wait := time.Until(due)
	if wait <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// publish makes a tick the present one.
func (p *player) publish(s *metric.Snapshot, at int64) error {
	if err := p.window.Put(s); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.ticks, p.missed = at, p.ticks+1, p.missed+s.Missed
	p.shown, p.since = s.Wall, time.Now()
	p.latest = merged(p.latest, s)
	for f := range p.followers {
		f.offer(s)
	}
	return nil
}

// merged is the present moment: a tick, and of the sources that it lacks what
// they gave last, as long as the run is the same.
func merged(before, s *metric.Snapshot) *metric.Snapshot {
	if before == nil || before.Run.ID != s.Run.ID {
		return s
	}
	out := *s
	out.Frames = append([]metric.Frame(nil), s.Frames...)
	have := map[string]bool{}
	for i := range s.Frames {
		have[s.Frames[i].Schema.Source] = true
	}
	for _, f := range before.Frames {
		if !have[f.Schema.Source] {
			out.Frames = append(out.Frames, f)
		}
	}
	return &out
}

// clock is the time of the ticks, which goes on between them.
func (p *player) clock() *web.Clock {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &web.Clock{Now: p.shown, Speed: p.flags.speed}
	switch {
	case p.over:
		c.Speed = 0
		return c
	case p.ticks == 0:
		return &web.Clock{Now: p.first}
	case p.flags.now:
		c.Speed = 1
	}
	c.Now += int64(float64(time.Since(p.since)) * c.Speed)
	return c
}

// end tells the followers that nothing more comes.
func (p *player) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for f := range p.followers {
		close(f.ticks)
		delete(p.followers, f)
	}
}

// shifting gives ticks the times and the run that a replay has.
type shifting struct {
	*player
	began   int64
	round   int
	of, run *metric.Run
	sources map[string]*relabelled
}

// snapshot is a copy of the tick, which nobody changes any more. position is
// how far from the beginning it is.
func (h *shifting) snapshot(s *metric.Snapshot, position int64) (*metric.Snapshot, error) {
	out := &metric.Snapshot{}
	out.CopyFrom(s)
	if h.of == nil || *h.of != *s.Run {
		of, run := *s.Run, *s.Run
		if h.round > 0 || h.flags.now { // another life, as far as anybody can tell
			run.ID[0] ^= byte(h.round) + 1
			run.ID[1] ^= byte(h.round >> 8)
		}
		h.of, h.run = &of, &run
	}
	out.Run = h.run
	if !h.flags.now {
		return out, nil
	}
	out.Wall = h.began + int64(float64(position)/h.flags.speed)
	out.Interval = max(1, int64(float64(s.Interval)/h.flags.speed))
	for i := range out.Frames {
		schema, err := h.schema(out.Frames[i].Schema, out.Wall-s.Wall)
		if err != nil {
			return nil, err
		}
		out.Frames[i].Schema = schema
	}
	return out, nil
}

// schema is one whose series began as much later as the tick is.
func (h *shifting) schema(schema *metric.Schema, by int64) (*metric.Schema, error) {
	have := h.sources[schema.Source]
	if have != nil && (have.of == schema || have.of.Hash == schema.Hash) {
		return have.schema, nil
	}
	series := append([]metric.Series(nil), schema.Series...)
	for i := range series {
		if series[i].Start != 0 {
			series[i].Start += by
		}
	}
	made, err := metric.NewSchema(schema.Source, series)
	if err != nil {
		return nil, fmt.Errorf("replay %s: %w", h.in.path, err)
	}
	h.sources[schema.Source] = &relabelled{schema, made}
	return made, nil
}
