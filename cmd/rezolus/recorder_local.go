// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"rezolus/internal/agent"
	"rezolus/internal/config"
	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// local measures in this process: an agent that nobody can reach.
func (r *recorder) local(ctx context.Context) (part, error) {
	f := r.flags
	c := config.Default()
	if f.local != ownConfig {
		var err error
		if c, err = config.Read(f.local); err != nil {
			return nil, usage{err}
		}
	}
	// The file is the ring, and nobody is there to ask for less.
	c.Hindsight.Enabled = false
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	h, err := build(c, log)
	if err != nil {
		return nil, err
	}
	t, err := r.tapeFor(h)
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return func(ctx context.Context) error {
		return errors.Join(r.measure(ctx, h, t), h.close())
	}, nil
}

func (r *recorder) tapeFor(h *house) (*tape, error) {
	if err := h.anything(); err != nil {
		return nil, err
	}
	return r.tape(r.flags.output, r.flags.meta)
}

// measure runs the agent until the context ends.
func (r *recorder) measure(ctx context.Context, h *house, t *tape) error {
	a := h.newAgent()
	sub, err := a.Subscribe("record", r.flags.every, agent.Depth(r.flags.every))
	if err != nil {
		return err
	}
	books, err := h.balance(a)
	if err != nil {
		return err
	}
	if books != nil {
		go func() { _ = books() }() // it fails never, and ends with the agent
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	var asleep agent.Suspension
	err = sub.Each(func(s *metric.Snapshot) error {
		if g, slept := asleep.Before(s, host.Slept); slept {
			t.gap(g)
		}
		_ = t.put(s) // it keeps its troubles; the next tick may find room
		r.progress.tick()
		return nil
	})
	if err != nil {
		err = fmt.Errorf("record: %w", err)
	}
	return errors.Join(err, <-ended)
}
