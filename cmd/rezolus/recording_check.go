// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/spf13/cobra"

	"rezolus/internal/export/parquet"
	"rezolus/internal/metric"
	"rezolus/internal/store"
)

func newRecordingCheck() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Read every byte of a recording and say what is wrong with it",
		Long: `Verifies every checksum, decodes every tick and holds their order and number
against what the recording says of itself. Exits with 1, and says what is wrong
and where, if anything is. That a file was not closed is no damage: it may still
grow.`,
		Example: "  rezolus recording check x.rzr\n  rezolus recording check x.rzr --json\n  rezolus recording check x.rzr || rezolus recording repair x.rzr -o y.rzr",
		Args:    exactly(1, "a recording"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := &checkup{Path: args[0], Problems: []problem{}, Notes: []string{}}
			if err := c.run(cmd.Context()); err != nil {
				return err
			}
			return c.report(cmd.OutOrStdout(), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the findings as JSON")
	return cmd
}

// checkup is what was found out about a file.
type checkup struct {
	Path     string    `json:"path"`
	Ticks    uint64    `json:"ticks"` // that can be read
	Bytes    int64     `json:"bytes"`
	Closed   bool      `json:"closed"`
	Problems []problem `json:"problems"`
	Notes    []string  `json:"notes"` // what is no damage, but good to know

	before metric.Snapshot
}

// problem is one thing that is wrong.
type problem struct {
	Offset  int64  `json:"offset"` // -1: not at one place
	Bytes   int64  `json:"bytes"`
	Problem string `json:"problem"`
}

func (c *checkup) wrong(format string, args ...any) {
	c.Problems = append(c.Problems, problem{-1, 0, fmt.Sprintf(format, args...)})
}

func (c *checkup) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

func (c *checkup) run(ctx context.Context) error {
	if isParquet(c.Path) {
		return c.parquet(ctx)
	}
	in, err := openRecording(ctx, c.Path)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := in.Each(ctx, math.MinInt64, math.MaxInt64, c.tick); err != nil {
		return err
	}
	info := in.Info()
	c.Bytes, c.Closed = info.Bytes, info.Closed
	for _, d := range info.Damage {
		c.Problems = append(c.Problems, problem{d.Offset, d.Bytes, d.Err.Error()})
	}
	if len(c.Problems) == 0 && info.Ticks != c.Ticks {
		c.wrong("it says that it has %d ticks, and %d can be read", info.Ticks, c.Ticks)
	}
	if !c.Closed {
		c.note("it was not closed: it still grows, or its writer was killed between two ticks")
	}
	return c.records()
}

// tick looks at the order of ticks.
func (c *checkup) tick(s *metric.Snapshot) error {
	b := &c.before
	if b.Run != nil && b.Run.ID == s.Run.ID {
		// Numbers are of one recorder each; a merge has those of several.
		if s.Mono <= b.Mono {
			c.wrong("tick %d at %s comes after tick %d, which is not before it", s.Seq, stamp(s.Wall), b.Seq)
		}
		if s.Wall <= b.Wall {
			c.note("the clock was set back from %s to %s", stamp(b.Wall), stamp(s.Wall))
		}
	}
	c.Ticks++
	c.before = *s
	c.before.Frames = nil
	return nil
}

// records reads the file as a stream: every byte of it belongs to a record
// whose checksums are right, whether anything refers to it or not.
func (c *checkup) records() error {
	f, err := os.Open(c.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	r, at := store.NewRecords(bufio.NewReaderSize(f, 1<<20)), int64(16) // behind the header
	for {
		rec, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrTruncated):
			switch {
			case at >= c.Bytes: // what was appended since belongs to the next check
			case len(c.Problems) > 0:
				c.note("the first record that is damaged begins at byte %d", at)
			default:
				c.Problems = append(c.Problems, problem{at, c.Bytes - at, err.Error()})
			}
			return nil
		case err != nil:
			return fmt.Errorf("read %s: %w", c.Path, err)
		}
		at += int64(len(rec.Raw))
	}
}

// parquet reads all of a Parquet file.
func (c *checkup) parquet(ctx context.Context) error {
	f, err := os.Open(c.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	file, size, err := parquetFile(f, c.Path)
	c.Bytes = size
	var reader *parquet.Reader
	if err == nil {
		reader = file.Ticks(math.MinInt64, math.MaxInt64, nil)
	}
	for err == nil {
		var s *metric.Snapshot
		if s, err = reader.Next(); err == nil {
			if err = c.tick(s); err == nil {
				err = ctx.Err()
			}
		}
	}
	switch {
	case errors.Is(err, parquet.ErrDamaged):
		c.wrong("%v", err)
		return nil
	case !errors.Is(err, io.EOF):
		return err
	}
	c.Closed = true
	if n := reader.Report().Skipped; len(n) > 0 {
		c.note("%d columns are not read, such as %s: %s", len(n), n[0].Column, n[0].Reason)
	}
	if n := reader.Report().Cells; n > 0 {
		c.wrong("%d histograms are not whole", n)
	}
	return nil
}

// report prints the findings. Damage is an error.
func (c *checkup) report(w io.Writer, asJSON bool) error {
	if asJSON {
		if err := printJSON(w, c); err != nil {
			return err
		}
	} else {
		for _, n := range c.Notes {
			fmt.Fprintf(w, "note: %s\n", n)
		}
		for _, p := range c.Problems {
			if p.Offset < 0 {
				fmt.Fprintf(w, "wrong: %s\n", p.Problem)
				continue
			}
			fmt.Fprintf(w, "wrong: byte %d, %d bytes: %s\n", p.Offset, p.Bytes, p.Problem)
		}
	}
	if n := len(c.Problems); n > 0 {
		err := fmt.Errorf("%s is damaged in %d places; %d ticks can be read", c.Path, n, c.Ticks)
		if isParquet(c.Path) {
			return err
		}
		return hint(err, "rezolus recording repair %s -o FILE keeps what is whole", c.Path)
	}
	if !asJSON {
		fmt.Fprintf(w, "%s: %d ticks, %d bytes, all is well\n", c.Path, c.Ticks, c.Bytes)
	}
	return nil
}

func newRecordingRepair() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "repair FILE -o OUT",
		Short: "Make a whole recording of what is whole in a damaged one",
		Long: `Copies every tick that can be read into a new recording, and marks those that
cannot as a gap. The damaged file is not touched.`,
		Example: "  rezolus recording repair x.rzr -o y.rzr",
		Args:    exactly(1, "a recording"),
		RunE:    func(cmd *cobra.Command, args []string) error { return repairRecording(cmd, args[0], &t) },
	}
	t.flags(cmd)
	return cmd
}

func repairRecording(cmd *cobra.Command, path string, t *target) error {
	if a, err := os.Stat(path); err == nil {
		if b, err := os.Stat(t.path); err == nil && os.SameFile(a, b) {
			return hint(usage{errors.New("a recording is not repaired in place")}, "name another file with -o")
		}
	}
	if err := t.recording(); err != nil {
		return err
	}
	in, err := openRecording(cmd.Context(), path)
	if err != nil {
		return err
	}
	defer in.Close()
	var made store.Copied
	err = t.produce(func(out string) error {
		r := &rewriting{extract: whole(in), holes: "lost to damage of the file"}
		made, err = r.run(cmd.Context(), out)
		if err == nil && made.Ticks == 0 {
			err = fmt.Errorf("not one tick of %s can be read", path)
		}
		return err
	})
	if err != nil {
		return err
	}
	info := in.Info()
	fmt.Fprintf(cmd.ErrOrStderr(), "%s; %s has %d ticks by its own account, and is damaged in %d places\n",
		copied(t.path, made), path, info.Ticks, len(info.Damage))
	return nil
}
