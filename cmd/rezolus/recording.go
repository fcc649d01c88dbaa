// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rezolus/internal/config"
	"rezolus/internal/metric"
	"rezolus/internal/query"
)

func newRecording() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "recording COMMAND",
		Aliases: []string{"parquet"},
		Short:   "Look into recordings; cut, merge, convert, check and repair them",
		Long: `Works on files of ticks: recordings (.rzr) and Parquet files (.parquet), ours
and those of the Rust implementation. What is written appears under its name
when it is whole and on the disk, and nothing is replaced without --force.
docs/recordings.md explains it at length.`,
		Example: `  rezolus recording info x.rzr
  rezolus recording cut x.rzr -o y.rzr --last 5m
  rezolus recording convert x.rzr -o x.parquet
  rezolus recording check x.rzr || rezolus recording repair x.rzr -o y.rzr`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return hint(usage{fmt.Errorf("unknown command %q", args[0])}, "%s --help", cmd.CommandPath())
			}
			return nil
		},
		// What is read passes by; the little that stays is worth little garbage.
		PersistentPreRun: func(*cobra.Command, []string) { debug.SetGCPercent(30) },
		RunE:             func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRecordingInfo(), newRecordingCut(), newRecordingMerge(), newRecordingConvert(),
		newRecordingCheck(), newRecordingRepair(), newRecordingEvents(), newRecordingAnnotate())
	return cmd
}

// selection is the ticks and series of a recording that are wanted.
type selection struct {
	start, end, last string
	match, samplers  []string
}

func (s *selection) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.start, "start", "", "first `time` that is kept: RFC 3339, Unix seconds, +30s from the beginning, -30s from the end")
	f.StringVar(&s.end, "end", "", "last `time` that is kept")
	f.StringVar(&s.last, "last", "", "keep the last so `long`, such as 15m")
	f.StringArrayVar(&s.match, "match", nil, "keep the series of a `selector` or of names such as cpu_*, may be repeated")
	f.StringSliceVar(&s.samplers, "samplers", nil, "keep the series of these samplers, with commas between")
}

// bounds are the first and the last moment that are kept, in Unix
// nanoseconds: all of time where nothing is said.
func (s *selection) bounds(first, last int64) (from, to int64, err error) {
	from, to = math.MinInt64, math.MaxInt64
	if s.last != "" {
		if s.start+s.end != "" {
			return 0, 0, usage{errors.New("--last goes without --start and --end")}
		}
		d, err := config.ParseDuration(s.last)
		if err != nil {
			return 0, 0, usage{fmt.Errorf("--last: %w", err)}
		}
		return last - int64(d), to, nil
	}
	if s.start != "" {
		if from, err = moment("--start", s.start, first, last); err != nil {
			return 0, 0, err
		}
	}
	if s.end != "" {
		if to, err = moment("--end", s.end, first, last); err != nil {
			return 0, 0, err
		}
	}
	if from > to {
		return 0, 0, usage{fmt.Errorf("--start %s is after --end %s", s.start, s.end)}
	}
	return from, to, nil
}

// within is bounds for a recording, where there must be something.
func (s *selection) within(in *opened) (from, to int64, err error) {
	first, last := in.Bounds()
	if from, to, err = s.bounds(first, last); err != nil {
		return 0, 0, err
	}
	if in.Info().Ticks > 0 && (from > last || to < first) {
		return 0, 0, fmt.Errorf("%s has nothing then: it goes from %s to %s", in.path, stamp(first), stamp(last))
	}
	return from, to, nil
}

// extract is what is wanted of a recording.
type extract struct {
	in       *opened
	from, to int64
	want     func(*metric.Series) bool // nil: all
}

// whole is all of a recording.
func whole(in *opened) extract { return extract{in: in, from: math.MinInt64, to: math.MaxInt64} }

// extract opens a recording, of which there must be something. The caller
// closes it.
func (s *selection) extract(cmd *cobra.Command, path string) (e extract, err error) {
	if e.want, err = s.want(); err != nil {
		return e, err
	}
	if e.in, err = openRecording(cmd.Context(), path); err != nil {
		return e, err
	}
	e.in.warn(cmd.ErrOrStderr())
	if e.from, e.to, err = s.within(e.in); err != nil {
		return e, errors.Join(err, e.in.Close())
	}
	return e, nil
}

// moment reads a time, in Unix nanoseconds. "+" counts from the first, "-"
// from the last, and a whole number too large for seconds is nanoseconds.
func moment(flag, text string, first, last int64) (int64, error) {
	if after, ok := strings.CutPrefix(text, "+"); ok {
		if d, err := config.ParseDuration(after); err == nil {
			return first + int64(d), nil
		}
	}
	if ns, err := strconv.ParseInt(text, 10, 64); err == nil && ns > 1e15 {
		return ns, nil
	}
	t, err := parseTime(flag, text, time.Unix(0, last), time.Unix(0, last))
	if err != nil {
		return 0, err
	}
	return t.UnixNano(), nil
}

// want is the test of series, nil where all are wanted.
func (s *selection) want() (func(*metric.Series) bool, error) {
	var tests []func(*metric.Series) bool
	for _, text := range s.match {
		test, err := matcher(text)
		if err != nil {
			return nil, err
		}
		tests = append(tests, test)
	}
	for _, name := range s.samplers {
		tests = append(tests, func(e *metric.Series) bool { return e.Desc.Sampler == name })
	}
	if len(tests) == 0 {
		return nil, nil
	}
	return func(e *metric.Series) bool {
		for _, test := range tests {
			if test(e) {
				return true
			}
		}
		return false
	}, nil
}

// matcher is the test of one --match: a pattern of names or a selector.
func matcher(text string) (func(*metric.Series) bool, error) {
	if strings.ContainsAny(text, "*?[") && !strings.Contains(text, "{") {
		if _, err := path.Match(text, ""); err != nil {
			return nil, usage{fmt.Errorf("--match %q: %w", text, err)}
		}
		return func(e *metric.Series) bool {
			ok, _ := path.Match(text, e.Desc.Name) // the pattern is good
			return ok
		}, nil
	}
	test, err := query.Selector(text)
	var syntax *query.SyntaxError
	if errors.As(err, &syntax) {
		return nil, hint(usage{fmt.Errorf("--match: %w\n%s", syntax, syntax.Excerpt())},
			`want a selector such as cpu_usage{state="user"}, or names such as cpu_*`)
	}
	return test, err
}

// stamp is a moment as people read it, to the nanosecond where it matters.
func stamp(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }
