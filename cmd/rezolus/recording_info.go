// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// recordingInfo is what `recording info --json` prints. Names stay.
type recordingInfo struct {
	Path     string            `json:"path"`
	Format   string            `json:"format"` // rzr or parquet
	Ticks    uint64            `json:"ticks"`
	Missed   uint64            `json:"missed"`
	StartNs  int64             `json:"start_ns"` // wall clock of the first tick
	EndNs    int64             `json:"end_ns"`   // and of the last
	Interval int64             `json:"interval_ns"`
	Series   int               `json:"series"`
	Bytes    int64             `json:"bytes"`
	Closed   bool              `json:"closed"`
	Runs     []runInfo         `json:"runs"`
	Metadata map[string]string `json:"metadata"`
	Sources  []sourceInfo      `json:"sources"`
	Gaps     []gapInfo         `json:"gaps"`
	Events   []eventInfo       `json:"events"`
	Damage   []damageInfo      `json:"damage"`
	Skipped  []skippedInfo     `json:"skipped_columns,omitempty"` // of a Parquet file
}

type runInfo struct {
	ID       string `json:"id"`
	Host     string `json:"host"`
	Kernel   string `json:"kernel"`
	Arch     string `json:"arch"`
	Version  string `json:"version"`
	Started  int64  `json:"started_ns"`
	Interval int64  `json:"interval_ns"`
}

// sourceInfo is one source. The bytes of a Parquet file are not known by
// source; given are those it would take as a recording.
type sourceInfo struct {
	Name   string `json:"name"`
	Series int    `json:"series"`
	Ticks  uint64 `json:"ticks"`
	Bytes  int64  `json:"bytes"`
}

type gapInfo struct {
	From   int64  `json:"from_ns"`
	To     int64  `json:"to_ns"`
	Ticks  uint64 `json:"ticks"` // 0: not known
	Reason string `json:"reason"`
}

type damageInfo struct {
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
	Error  string `json:"error"`
}

type skippedInfo struct {
	Column string `json:"column"`
	Reason string `json:"reason"`
}

func newRecordingInfo() *cobra.Command {
	var asJSON bool
	var input, field string
	cmd := &cobra.Command{
		Use:     "info FILE",
		Aliases: []string{"metadata"},
		Short:   "Say what a recording is",
		Long: `Prints when a recording was made, by whom, how many ticks it has and misses, the
bytes that each source takes, metadata, gaps with their reasons, events and
damage. A Parquet file is read through for that.`,
		Example: `  rezolus recording info x.rzr
  rezolus recording info x.rzr --json | jq '.ticks, .missed'
  rezolus recording info x.parquet --field systeminfo`,
		Args: func(_ *cobra.Command, args []string) error {
			if input != "" {
				args = append(args, input)
			}
			if len(args) != 1 {
				return hint(usage{fmt.Errorf("%d arguments; want a recording", len(args))}, "rezolus recording info --help")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := openRecording(cmd.Context(), append(args, input)[0])
			if err != nil {
				return err
			}
			defer in.Close()
			if field != "" {
				return printField(cmd.OutOrStdout(), in, field)
			}
			info, err := in.describe(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), info)
			}
			return info.print(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print everything as JSON")
	cmd.Flags().StringVar(&field, "field", "", "print only the metadata of this `key`, as it is")
	cmd.Flags().StringVarP(&input, "input", "i", "", "the recording, as the Rust implementation has it")
	return cmd
}

func printField(w io.Writer, in *opened, field string) error {
	meta := in.metadata()
	value, ok := meta[field]
	if !ok {
		return hint(fmt.Errorf("%s has no metadata %q", in.path, field), "it has: %s", strings.Join(slices.Sorted(maps.Keys(meta)), ", "))
	}
	_, err := fmt.Fprintln(w, value)
	return err
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// describe collects all there is to say.
func (o *opened) describe(ctx context.Context) (*recordingInfo, error) {
	r, err := o.recording(ctx)
	if err != nil {
		return nil, err
	}
	used, err := r.Usage(ctx)
	if err != nil {
		return nil, err
	}
	i := r.Info()
	out := &recordingInfo{Path: o.path, Format: "rzr", Ticks: i.Ticks, Missed: i.Missed, StartNs: i.First, EndNs: i.Last,
		Interval: int64(i.Interval), Series: i.Series, Bytes: i.Bytes, Closed: i.Closed, Metadata: o.metadata(),
		Runs: []runInfo{}, Sources: []sourceInfo{}, Gaps: []gapInfo{}, Events: o.events(), Damage: []damageInfo{}}
	for _, r := range i.Runs {
		out.Runs = append(out.Runs, runInfo{hex.EncodeToString(r.Run.ID[:]), r.Run.Host, r.Run.Kernel, r.Run.Arch,
			r.Run.Version, r.Run.Started, int64(r.Interval)})
	}
	for _, s := range used {
		out.Sources = append(out.Sources, sourceInfo(s))
	}
	for _, g := range i.Gaps {
		out.Gaps = append(out.Gaps, gapInfo(g))
	}
	for _, d := range i.Damage {
		out.Damage = append(out.Damage, damageInfo{d.Offset, d.Bytes, d.Err.Error()})
	}
	if o.foreign != nil {
		out.Format, out.Bytes = "parquet", o.foreign.info.Bytes
		for _, s := range o.foreign.Report().Skipped {
			out.Skipped = append(out.Skipped, skippedInfo(s))
		}
	}
	return out, nil
}

// state says in words whether the file is whole.
func (i *recordingInfo) state() string {
	switch {
	case len(i.Damage) > 0:
		return fmt.Sprintf("damaged in %d places; see rezolus recording check", len(i.Damage))
	case i.Closed:
		return "closed"
	}
	return "not closed: it still grows, or its writer was killed"
}

// print is for people.
func (i *recordingInfo) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t"+format+"\n", append([]any{name}, args...)...)
	}
	row("file", "%s (%s), %s", i.Path, i.Format, i.state())
	for _, r := range i.Runs {
		row("host", "%s", r.words())
	}
	if i.Ticks > 0 {
		row("time", "%s to %s, %v", stamp(i.StartNs), stamp(i.EndNs), time.Duration(i.EndNs-i.StartNs))
	}
	row("ticks", "%d, one every %v, %d missed", i.Ticks, time.Duration(i.Interval), i.Missed)
	row("series", "%d", i.Series)
	row("bytes", "%d, %.1f a tick", i.Bytes, float64(i.Bytes)/float64(max(i.Ticks, 1)))
	for _, k := range slices.Sorted(maps.Keys(i.Metadata)) {
		row("metadata", "%s=%s", k, clip(i.Metadata[k]))
	}
	for _, g := range i.Gaps {
		row("gap", "%s to %s, %s: %s", stamp(g.From), stamp(g.To), count(g.Ticks), g.Reason)
	}
	for _, e := range i.Events {
		row("event", "%s %s", stamp(e.Time), e.Text)
	}
	for _, d := range i.Damage {
		row("damage", "%d bytes at %d: %s", d.Bytes, d.Offset, d.Error)
	}
	if n := len(i.Skipped); n > 0 {
		row("not read", "%d columns, such as %s: %s", n, i.Skipped[0].Column, i.Skipped[0].Reason)
	}
	if err := w.Flush(); err != nil || len(i.Sources) == 0 {
		return err
	}
	fmt.Fprintln(out)
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "bytes\tseries\tticks\t source")
	for _, s := range i.Sources {
		fmt.Fprintf(w, "%d\t%d\t%d\t %s\n", s.Bytes, s.Series, s.Ticks, s.Name)
	}
	return w.Flush()
}

// words are what is known of the run.
func (r *runInfo) words() string {
	var all []string
	for _, w := range [][2]string{{"", r.Host}, {"Linux ", r.Kernel}, {"", r.Arch}, {"rezolus ", r.Version}} {
		if w[1] != "" {
			all = append(all, w[0]+w[1])
		}
	}
	return strings.Join(all, ", ")
}

// count says how many ticks a gap has, where that is known.
func count(ticks uint64) string {
	if ticks == 0 {
		return "ticks not counted"
	}
	return fmt.Sprintf("%d ticks", ticks)
}

// clip keeps a line a line.
func clip(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "..."
	}
	return s
}
