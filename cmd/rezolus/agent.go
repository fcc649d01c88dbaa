// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"rezolus/internal/agent"
	"rezolus/internal/bpf"
	"rezolus/internal/config"
	"rezolus/internal/export/prom"
	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/query"
	"rezolus/internal/store"
	"rezolus/internal/web"
)

// runAgent is `rezolus [CONFIG]`.
func runAgent(ctx context.Context, args []string) error {
	c := config.Default()
	if len(args) == 1 {
		var err error
		if c, err = config.Read(args[0]); err != nil {
			return usage{err}
		}
	}
	level, err := c.Log.SlogLevel()
	if err != nil {
		return usage{err}
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	listener, err := listen(c.General.Listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	h, err := build(c, log)
	if err != nil {
		return err
	}
	defer h.close()
	if err := h.anything(); err != nil {
		return err
	}
	// What parsing the probes and the kernel's types took is not needed again.
	settle(ctx, collect)
	// The loop that takes a tick every millisecond keeps one to itself.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	return h.serve(ctx, listener)
}

func listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, hint(fmt.Errorf("listen on %s: the port is in use", address),
			"another agent may run already (rezolus status http://%s); or set listen under [general]", address)
	case err != nil:
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}

// anything fails when there are probes to run and not one runs, and says which
// samplers do not: a warning when a fix could bring them back. An agent without
// probes is one that was asked for: all their samplers are switched off.
func (h *house) anything() error {
	failed, missing, running := h.without(bpf.Failed), h.without(bpf.Unsupported), 0
	wanted := false
	for _, p := range h.probes {
		wanted = wanted || len(p.Status()) > 0 && !allDisabled(p.Status())
		if slices.ContainsFunc(p.Status(), func(s bpf.SamplerStatus) bool { return s.State == bpf.Healthy || s.State == bpf.Degraded }) {
			running++
		}
	}
	wanted = wanted || len(h.failed) > 0
	if running == 0 && wanted {
		reason := append(failed, missing...)[0].Reason
		if os.Geteuid() != 0 {
			return hint(fmt.Errorf("no probe can run: %s", reason), "sudo rezolus")
		}
		return hint(fmt.Errorf("no probe can run: %s", reason), "rezolus doctor says what each needs; [defaults] enabled = false runs without")
	}
	if len(failed) > 0 {
		h.log.Warn("samplers do not run; rezolus doctor says why", "samplers", names(failed), "reason", failed[0].Reason)
	}
	for _, s := range h.without(bpf.Degraded) {
		h.log.Warn("a sampler runs in part; rezolus doctor says why", "sampler", s.Name, "reason", s.Reason)
	}
	if len(missing) > 0 {
		h.log.Info("samplers have nothing to read on this machine; rezolus doctor says why", "samplers", names(missing))
	}
	return nil
}

// without lists the samplers of a state, those of probes first: they are why
// the agent was started.
func (h *house) without(state bpf.State) (all []bpf.SamplerStatus) {
	add := func(list []bpf.SamplerStatus) {
		for _, s := range list {
			if s.State == state {
				all = append(all, s)
			}
		}
	}
	add(h.failed)
	for _, p := range h.probes {
		add(p.Status())
	}
	add(h.others)
	return all
}

func allDisabled(list []bpf.SamplerStatus) bool {
	return !slices.ContainsFunc(list, func(s bpf.SamplerStatus) bool { return s.State != bpf.Disabled })
}

func names(list []bpf.SamplerStatus) []string {
	var all []string
	for _, s := range list {
		all = append(all, s.Name)
	}
	return all
}

// serve runs the agent until the context ends or a part of it fails.
func (h *house) serve(ctx context.Context, listener net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	a := h.newAgent()
	interval := time.Duration(h.config.General.Interval)
	window := store.NewWindow(int(h.config.Window.Memory))
	h.overhead = h.newOverhead(a, window)
	sub, err := a.Subscribe("window", interval, agent.Depth(interval))
	if err != nil {
		return err
	}
	var parts sync.WaitGroup
	failed := make(chan error, 6)
	start := func(f func() error) {
		parts.Go(func() {
			if err := f(); err != nil {
				failed <- err
			}
			stop() // one part ends, all end
		})
	}
	server, err := secure(h.server(a, window), "general.web_config", h.config.General.WebConfig)
	if err != nil {
		return err
	}
	// The agent closes what the budget changes, and so ends after it.
	budgeted, release := context.WithCancel(context.WithoutCancel(ctx))
	start(func() error {
		defer release()
		return h.overhead.Run(ctx)
	})
	start(func() error { return a.Run(budgeted) })
	start(func() error { return fill(window, sub) })
	books, err := h.balance(a)
	if err != nil {
		return err
	}
	if books != nil {
		start(books)
	}
	keep, err := h.keep(ctx, a)
	if err != nil {
		return err
	}
	a.SetBackfill(h.rings.past(window, interval).suited)
	start(keep)
	start(func() error { return serveUntil(ctx, server, listener) })
	fmt.Printf("rezolus %s: %s://%s/\n", version, server.scheme(), listener.Addr())
	parts.Wait()
	close(failed)
	return <-failed
}

// fill puts ticks into the live window.
func fill(window *store.Window, sub *agent.Subscription) error {
	return sub.Each(func(s *metric.Snapshot) error {
		if err := window.Put(s); err != nil {
			return fmt.Errorf("live window: %w", err)
		}
		return nil
	})
}

func (h *house) server(a *agent.Agent, window *store.Window) *http.Server {
	engine := query.New(query.Options{Lookback: lookback(time.Duration(h.config.General.Interval))})
	run, reader := host.NewRun(version), h.rings.reader(window)
	latest := func(ctx context.Context) (*metric.Snapshot, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return a.Latest(ctx, time.Duration(h.config.General.TTL))
	}
	return newServer(web.New(web.Options{
		Page: func() web.Page {
			first, last := reader.Bounds()
			return web.Page{Mode: web.Live, Host: run.Host, Kernel: run.Kernel, Version: version,
				First: first, Last: last, Interval: time.Duration(h.config.General.Interval)}
		},
		API:     h.overhead.count(query.API(engine, reader, buildInfo())),
		Metrics: prom.Handler(latest),
		Stream:  a.StreamHandler(),
		Status:  h.overhead.count(h.statusHandler(a)),
		System:  http.HandlerFunc(systemInfo),
		Others:  h.rings.Handlers(),
		Listen:  h.config.General.Listen,
	}))
}

// newServer bounds what a client can make the server wait for.
func newServer(handler http.Handler) *http.Server {
	return &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10}
}

// servable is a server, with TLS or without.
type servable interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
	Close() error
}

// serveUntil serves until the context ends, and then gives requests a moment.
func serveUntil(ctx context.Context, server servable, listener net.Listener) error {
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if server.Shutdown(grace) != nil {
		return server.Close() // those that did not end in time
	}
	return nil
}
