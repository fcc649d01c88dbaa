// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"rezolus/internal/metric"
	"rezolus/internal/store"
)

func newRecordingCut() *cobra.Command {
	var s selection
	var t target
	cmd := &cobra.Command{
		Use:     "cut FILE -o OUT",
		Aliases: []string{"filter"},
		Short:   "Keep a part of a recording: some ticks, some series",
		Long: `Copies the ticks between two times, both included, exactly, with the gaps and
events that lie between. With --match only the series are kept that match one of
them.

A time is RFC 3339, Unix seconds (or nanoseconds, as info --json has them), a
distance from the beginning such as +30s, or from the end such as -30s.`,
		Example: `  rezolus recording cut x.rzr -o y.rzr --last 5m
  rezolus recording cut x.rzr -o y.rzr --start +10s --end -10s
  rezolus recording cut x.rzr -o y.rzr --start 2026-01-02T03:04:05Z --end 2026-01-02T03:05:00Z
  rezolus recording cut x.rzr -o cpu.rzr --match 'cpu_*' --match 'syscall{op="read"}'`,
		Args: exactly(1, "a recording"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cutRecording(cmd, args[0], &t, &s)
		},
	}
	t.flags(cmd)
	s.flags(cmd)
	return cmd
}

func cutRecording(cmd *cobra.Command, path string, t *target, s *selection) error {
	if err := t.recording(); err != nil {
		return err
	}
	p, err := s.extract(cmd, path)
	if err != nil {
		return err
	}
	defer p.in.Close()
	var made store.Copied
	err = t.produce(func(out string) error {
		made, err = copyPart(cmd.Context(), p, out)
		return err
	})
	if err != nil {
		return err
	}
	p.in.complain(cmd.ErrOrStderr())
	fmt.Fprintln(cmd.ErrOrStderr(), copied(t.path, made))
	return nil
}

// each gives the ticks of a span to f, with the series that are wanted; nil
// wants all.
func (o *opened) each(ctx context.Context, from, to int64, want func(*metric.Series) bool, f func(*metric.Snapshot) error) error {
	switch {
	case want == nil:
		return o.Each(ctx, from, to, f)
	case o.foreign != nil:
		return o.foreign.each(ctx, from, to, want, f)
	}
	p := newProjector(want)
	return o.Each(ctx, from, to, func(s *metric.Snapshot) error { return f(p.snapshot(s)) })
}

// copyPart makes a recording of a part of another.
func copyPart(ctx context.Context, e extract, out string) (made store.Copied, err error) {
	if e.want != nil || e.in.foreign != nil {
		r := &rewriting{extract: e}
		made, err = r.run(ctx, out)
	} else if of, err := e.in.recording(ctx); err != nil {
		return made, err
	} else if made, err = store.Copy(ctx, osFS, out, store.CopyOptions{From: e.from, To: e.to}, of); err != nil {
		return made, err
	}
	if err == nil && made.Ticks == 0 {
		err = fmt.Errorf("%s has no tick then", e.in.path)
	}
	return made, err
}

// projector leaves some series of each tick.
type projector struct {
	want   func(*metric.Series) bool
	source map[string]*projected
	tick   metric.Snapshot
}

// projected is what is left of a source.
type projected struct {
	of     *metric.Schema
	schema *metric.Schema // nil: nothing
	words  []int          // of the source's words, those that are left
	values []uint64
}

func newProjector(want func(*metric.Series) bool) *projector {
	return &projector{want: want, source: map[string]*projected{}}
}

// snapshot is the tick with what is left of it, valid until the next call.
func (p *projector) snapshot(s *metric.Snapshot) *metric.Snapshot {
	frames := p.tick.Frames[:0]
	p.tick = *s
	for i := range s.Frames {
		f := s.Frames[i]
		out := p.source[f.Schema.Source]
		if out == nil || out.of != f.Schema && out.of.Hash != f.Schema.Hash {
			out = project(f.Schema, p.want)
			p.source[f.Schema.Source] = out
		}
		if out.schema == nil {
			continue
		}
		for j, w := range out.words {
			out.values[j] = f.Values[w]
		}
		f.Schema, f.Values = out.schema, out.values
		frames = append(frames, f)
	}
	p.tick.Frames = frames
	return &p.tick
}

func project(schema *metric.Schema, want func(*metric.Series) bool) *projected {
	out := &projected{of: schema}
	var series []metric.Series
	for _, e := range schema.Series {
		if !want(&e) {
			continue
		}
		series = append(series, e)
		for w := range e.Desc.Words() {
			out.words = append(out.words, e.Off+w)
		}
	}
	if len(series) == 0 {
		return out
	}
	made, err := metric.NewSchema(schema.Source, series)
	if err != nil {
		panic(err) // a part of a good schema is one
	}
	out.schema, out.values = made, make([]uint64, len(out.words))
	return out
}
