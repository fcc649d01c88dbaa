// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rezolus/internal/store"
)

// eventInfo is an event as it is printed.
type eventInfo struct {
	Time int64  `json:"time_ns"`
	Text string `json:"text"`
}

// events are the recording's, in the order of time.
func (o *opened) events() []eventInfo {
	out := []eventInfo{}
	for _, e := range o.Info().Events {
		out = append(out, eventInfo(e))
	}
	slices.SortStableFunc(out, func(a, b eventInfo) int { return cmp.Compare(a.Time, b.Time) })
	return out
}

func newRecordingEvents() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "events FILE",
		Short:   "List the events of a recording",
		Long:    "Prints a line for each event, in the order of time. rezolus recording annotate adds one.",
		Example: "  rezolus recording events x.rzr\n  rezolus recording events x.rzr --json",
		Args:    exactly(1, "a recording"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := openRecording(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			if asJSON {
				return printJSON(cmd.OutOrStdout(), in.events())
			}
			return printEvents(cmd.OutOrStdout(), in.events())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print them as JSON")
	return cmd
}

func printEvents(w io.Writer, events []eventInfo) error {
	for _, e := range events {
		if _, err := fmt.Fprintf(w, "%s  %s\n", stamp(e.Time), e.Text); err != nil {
			return err
		}
	}
	return nil
}

// maxEventText is how long the line of an event may be.
const maxEventText = 4096

func newRecordingAnnotate() *cobra.Command {
	var at string
	var t target
	cmd := &cobra.Command{
		Use:   "annotate FILE TEXT",
		Short: "Add an event, a line of text with a time, to a recording",
		Long: `Adds a line of text with a time to a recording that was closed. The recording
with the event takes the place of the old one at once, or is written to another
file with -o. A time is as for cut; without --at it is now, if the recording has
only just ended, and otherwise its end.`,
		Example: `  rezolus recording annotate x.rzr 'deployed 1.2.3' --at 2026-01-02T03:04:05Z
  rezolus recording annotate x.rzr 'load doubled' --at +90s
  rezolus recording annotate x.rzr 'warm from here on' --at -5m -o y.rzr`,
		Args: exactly(2, "a recording and a text"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return annotate(cmd.Context(), args[0], args[1], at, &t)
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "the `time` of the event")
	t.flags(cmd)
	return cmd
}

func annotate(ctx context.Context, path, text, at string, t *target) error {
	text = strings.TrimSpace(text)
	if text == "" || len(text) > maxEventText || strings.ContainsAny(text, "\r\n") {
		return usage{fmt.Errorf("the text of an event is one line of at most %d bytes", maxEventText)}
	}
	in, err := openRecording(ctx, path)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := in.annotatable(); err != nil {
		return err
	}
	if t.path == "" {
		// Not the link is replaced, but what it leads to.
		if t.path, err = filepath.EvalSymlinks(path); err != nil {
			return err
		}
		t.force = true
	} else if err := t.recording(); err != nil {
		return err
	}
	e := store.Event{Time: in.present(), Text: text}
	if at != "" {
		first, last := in.Bounds()
		if e.Time, err = moment("--at", at, first, last); err != nil {
			return err
		}
	}
	return t.produce(func(out string) error { return in.copyWith(ctx, e, out) })
}

// annotatable refuses what cannot be replaced without a loss.
func (o *opened) annotatable() error {
	switch info := o.Info(); {
	case o.foreign != nil:
		return hint(fmt.Errorf("%s is a Parquet file", o.path), "rezolus recording convert %s -o FILE.rzr, and annotate that", o.path)
	case len(info.Damage) > 0:
		return hint(fmt.Errorf("%s is damaged", o.path), "rezolus recording repair %s -o FILE.rzr, and annotate that", o.path)
	case !info.Closed:
		return hint(fmt.Errorf("%s was not closed; it may still grow", o.path),
			"wait until its recorder ends; if it was killed: rezolus recording repair %s -o FILE.rzr, and annotate that", o.path)
	}
	return nil
}

// present is now, for a recording that has only just ended, and else its end.
func (o *opened) present() int64 {
	_, last := o.Bounds()
	if now := time.Now().UnixNano(); now >= last && now-last < int64(time.Minute) {
		return now
	}
	return last
}

// copyWith copies the recording with one event more.
func (o *opened) copyWith(ctx context.Context, e store.Event, out string) error {
	note := out + ".event" // in a folder that goes
	w, err := store.Create(osFS, note, store.WriterOptions{Sync: -1, Rows: true})
	if err != nil {
		return err
	}
	if err := errors.Join(w.WriteEvent(e), w.Close()); err != nil {
		return err
	}
	event, err := store.Open(osFS, note)
	if err != nil {
		return err
	}
	defer event.Close()
	of, err := o.recording(ctx)
	if err != nil {
		return err
	}
	if _, err := store.Copy(ctx, osFS, out, store.CopyOptions{}, of, event); err != nil {
		return err
	}
	return o.annotatable() // damage may have been found while it was read
}
