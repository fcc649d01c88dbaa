// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"rezolus/internal/follow"
	"rezolus/internal/gather"
	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// recorder is one `rezolus record`: a tape, or one for each endpoint.
type recorder struct {
	flags    *recordFlags
	began    time.Time
	progress *progress

	mu    sync.Mutex // of what a second signal looks at
	tapes []*tape
	child *child
	over  atomic.Bool // it ended, and not by a signal
}

func newRecorder(f *recordFlags) *recorder {
	r := &recorder{flags: f, began: time.Now()}
	r.progress = newProgress(r)
	return r
}

// part is what fills a tape, until the context ends.
type part func(ctx context.Context) error

// prepare reaches what is to be recorded and makes the files. What is wrong
// with either is said before there is anything to lose.
func (r *recorder) prepare(ctx context.Context) ([]part, error) {
	f := r.flags
	switch {
	case f.local != "":
		p, err := r.local(ctx)
		return []part{p}, err
	case f.separate && len(f.places) > 1:
		return r.each(ctx)
	case len(f.places) == 1:
		p, err := r.one(ctx, f.places[0], f.output)
		return []part{p}, err
	}
	t, err := r.tape(f.output, f.meta)
	if err != nil {
		return nil, err
	}
	p, err := r.many(t, f.places, false)
	return []part{p}, err
}

// each records every endpoint into a file of its own. Those that do not answer
// yet are waited for, if any does.
func (r *recorder) each(ctx context.Context) ([]part, error) {
	var all []part
	var absent []*place
	var errs []error
	for _, p := range r.flags.places {
		part, err := r.one(ctx, p, separatePath(r.flags.output, p))
		if err != nil {
			if errors.As(err, new(usage)) || len(r.tapes) > len(all) {
				return nil, err // no fault of the endpoint's
			}
			absent, errs = append(absent, p), append(errs, err)
			continue
		}
		all = append(all, part)
	}
	if len(all) == 0 {
		return nil, errors.Join(errs...)
	}
	for _, p := range absent {
		t, err := r.tape(separatePath(r.flags.output, p), r.flags.metaOf(p))
		if err != nil {
			return nil, err
		}
		part, err := r.many(t, []*place{p}, true)
		if err != nil {
			return nil, err
		}
		all = append(all, part)
	}
	return all, nil
}

// separatePath is the name of a file for one endpoint of several.
func separatePath(output string, p *place) string {
	source := p.source
	if source == "" {
		source = p.name
	}
	source = strings.Map(func(c rune) rune {
		if strings.ContainsRune(`/\:`, c) {
			return '-'
		}
		return c
	}, source)
	ext := filepath.Ext(output)
	return strings.TrimSuffix(output, ext) + "_" + source + ext
}

func (r *recorder) tape(path string, meta map[string]string) (*tape, error) {
	t, err := createTape(r.flags, path, meta, r.progress.say)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tapes = append(r.tapes, t)
	return t, nil
}

// one records a single endpoint: an agent as its bytes come.
func (r *recorder) one(ctx context.Context, p *place, path string) (part, error) {
	f := r.flags
	if p.protocol != speaksPrometheus {
		// The stream outlives the recording by the ticks under way.
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		release := context.AfterFunc(ctx, cancel)
		s, err := follow.Open(own, r.watched(p, f.options(p)))
		if err == nil {
			release()
			t, err := r.tape(path, f.metaOf(p))
			if err != nil {
				s.Close()
				cancel()
				return nil, err
			}
			return func(ctx context.Context) error { return r.follow(ctx, s, t, cancel) }, nil
		}
		cancel()
		if !errors.Is(err, follow.ErrNoAgent) || p.protocol == speaksRezolus {
			return nil, f.access.explain(p.url.Redacted(), err)
		}
		alone := *p
		alone.protocol, p = speaksPrometheus, &alone
	}
	t, err := r.tape(path, f.metaOf(p))
	if err != nil {
		return nil, err
	}
	return r.many(t, []*place{p}, r.flags.separate)
}

// watched has the state of a stream said.
func (r *recorder) watched(p *place, o follow.Options) follow.Options {
	o.State = func(err error) {
		if err != nil {
			r.progress.note("%s: %v; it is waited for", p.name, err)
		} else {
			r.progress.note("%s: followed again", p.name)
		}
	}
	return o
}

// underWay is how long ticks up to the end are waited for.
const underWay = 300 * time.Millisecond

// follow copies an agent's ticks up to the moment when the context ends.
func (r *recorder) follow(ctx context.Context, s *follow.Stream, t *tape, cancel func()) error {
	defer s.Close()
	defer cancel()
	var end atomic.Int64
	release := context.AfterFunc(ctx, func() {
		end.Store(time.Now().UnixNano())
		time.AfterFunc(min(underWay, 20*r.flags.every), cancel)
		if r.flags.every >= underWay { // none is under way
			cancel()
		}
	})
	defer release()
	for {
		tick, err := s.Next()
		if ctx.Err() != nil && err != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if at := end.Load(); at != 0 && tick.Wall > at+int64(s.Clock()) {
			return nil
		}
		if t.putRaw(tick) != nil {
			// The disk may have room again; the agent's next stream begins
			// with all a reader needs.
			s.Restart()
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(100 * time.Millisecond):
			}
		}
		r.progress.tick()
	}
}

// many gathers endpoints into a tape.
func (r *recorder) many(t *tape, places []*place, wait bool) (part, error) {
	o := gather.Options{Interval: r.flags.every, Run: host.NewRun(version), Wait: wait, Gap: t.gap, Event: t.event,
		Put: func(s *metric.Snapshot) error {
			err := t.put(s)
			r.progress.tick()
			return err
		}}
	for _, p := range places {
		o.Endpoints = append(o.Endpoints, r.flags.endpoint(p))
	}
	g, err := gather.New(o)
	if err != nil {
		return nil, usage{err}
	}
	return func(ctx context.Context) error {
		err := g.Run(ctx)
		t.missed.Add(g.Missed())
		return err
	}, nil
}

// run records until the context ends or the command does.
func (r *recorder) run(ctx context.Context, parts []part) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer r.progress.clear()
	if len(r.flags.command) > 0 {
		child, err := startCommand(r.flags.command)
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.child = child
		r.mu.Unlock()
		go func() {
			child.wait()
			stop(errCommandEnded)
		}()
	}
	var all sync.WaitGroup
	errs := make([]error, len(parts))
	for i, p := range parts {
		all.Go(func() {
			if errs[i] = p(ctx); errs[i] != nil {
				stop(errs[i])
			}
		})
	}
	all.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, errTimeUp) || errors.Is(cause, errCommandEnded) {
		r.over.Store(true)
	}
	return errors.Join(append(errs, r.endCommand(context.Cause(ctx)))...)
}

// endCommand is the exit status of the command, which is ended unless it did.
func (r *recorder) endCommand(cause error) error {
	if r.child == nil {
		return nil
	}
	if !errors.Is(cause, errCommandEnded) {
		r.child.end()
	}
	status := r.child.status()
	if errors.Is(cause, errTimeUp) {
		status = 124
	}
	if status != 0 {
		return exit(status)
	}
	return nil
}

var errCommandEnded = errors.New("the command ended")

// finish closes the files and says what is in them. failed says that there is
// an error already.
func (r *recorder) finish(failed bool) error {
	var errs []error
	for _, t := range r.tapes {
		if t.ticks.Load() == 0 {
			errs = append(errs, t.troubled, t.discard())
			if t.troubled == nil && !failed && !r.flags.separate {
				errs = append(errs, fmt.Errorf("%s: nothing was recorded", t.path))
			}
			continue
		}
		errs = append(errs, t.finish())
		fmt.Fprintln(os.Stderr, t.summary(time.Since(r.began)))
	}
	return errors.Join(errs...)
}

// discard removes the files, into which nothing was recorded.
func (r *recorder) discard() error {
	var errs []error
	for _, t := range r.tapes {
		errs = append(errs, t.discard())
	}
	return errors.Join(errs...)
}

// onSecondSignal ends the process at once when it is told to end twice, or
// while it finishes. Every tick that came is in the file by then.
func (r *recorder) onSecondSignal() (release func()) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		first := true
		for s := range signals {
			if first && !r.over.Load() {
				first = false
				continue
			}
			r.abort(s.(syscall.Signal))
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}

func (r *recorder) abort(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.child != nil {
		r.child.kill()
	}
	for _, t := range r.tapes {
		t.leave()
		fmt.Fprintf(os.Stderr, "rezolus: warning: ended at once; every tick is in %s\n", t.rows)
	}
	os.Exit(128 + int(s))
}
