// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rezolus/internal/config"
	"rezolus/internal/query"
	"rezolus/internal/vfs"
)

// osFS is where recordings are.
var osFS = vfs.OS

type queryFlags struct {
	at, start, end, step, format string
}

func newQuery() *cobra.Command {
	var f queryFlags
	cmd := &cobra.Command{
		Use:   "query FILE EXPR",
		Short: "Ask a recording in PromQL",
		Long: `Evaluates a PromQL expression over a recording, with Prometheus's own engine.
Without a time the expression is evaluated at the recording's end; with --start,
--end or --step, at every step between the two. A time is RFC 3339, a Unix
time in seconds, or a distance from the recording's end such as -30s. A running
agent answers the same at /api/v1/query.`,
		Example: `  rezolus query x.rzr 'sum by (state) (rate(cpu_usage[5s])) / 1e9'
  rezolus query x.rzr 'histogram_quantile(0.99, rate(scheduler_runqueue_latency[5s]))' --step 1s
  rezolus query x.rzr 'topk(5, rate(cgroup_cpu_usage[10s]))' --format json`,
		Args: exactly(2, "a recording and an expression"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd.Context(), cmd.OutOrStdout(), args[0], args[1], f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.at, "time", "", "evaluate at this time")
	flags.StringVar(&f.start, "start", "", "first time of a range")
	flags.StringVar(&f.end, "end", "", "last time of a range")
	flags.StringVar(&f.step, "step", "", "time from one evaluation to the next (default 1s)")
	flags.StringVar(&f.format, "format", "table", strings.Join(query.Formats, ", "))
	return cmd
}

func ask(ctx context.Context, w io.Writer, path, expr string, f queryFlags) error {
	if !slices.Contains(query.Formats, f.format) {
		return usage{fmt.Errorf("--format %q: want %s", f.format, strings.Join(query.Formats, ", "))}
	}
	recording, err := openRecording(ctx, path)
	if err != nil {
		return err
	}
	defer recording.Close()
	recording.warn(os.Stderr)
	first, last := recording.Bounds()
	engine := query.New(query.Options{Lookback: lookback(recording.Info().Interval)})
	result, err := f.evaluate(ctx, engine, recording, expr, time.Unix(0, first), time.Unix(0, last))
	var syntax *query.SyntaxError
	if errors.As(err, &syntax) {
		return usage{fmt.Errorf("query: %w\n%s", syntax, syntax.Excerpt())}
	}
	if err != nil {
		return err
	}
	return query.Format(w, result, f.format)
}

func (f queryFlags) evaluate(ctx context.Context, engine *query.Engine, r query.Reader, expr string, first, last time.Time) (*query.Result, error) {
	if f.start+f.end+f.step == "" {
		at, err := parseTime("--time", f.at, last, last)
		if err != nil {
			return nil, err
		}
		return engine.Instant(ctx, r, expr, at)
	}
	if f.at != "" {
		return nil, usage{errors.New("--time is for one moment, --start, --end and --step are for a range")}
	}
	start, err := parseTime("--start", f.start, first, last)
	if err != nil {
		return nil, err
	}
	end, err := parseTime("--end", f.end, last, last)
	if err != nil {
		return nil, err
	}
	step := time.Second
	if f.step != "" {
		if step, err = config.ParseDuration(f.step); err != nil {
			return nil, usage{fmt.Errorf("--step: %w", err)}
		}
	}
	return engine.Range(ctx, r, expr, start, end, step)
}

// parseTime reads a time; text that is empty is the fallback, and a distance
// counts from last.
func parseTime(flag, text string, fallback, last time.Time) (time.Time, error) {
	if text == "" {
		return fallback, nil
	}
	if before, ok := strings.CutPrefix(text, "-"); ok {
		if d, err := config.ParseDuration(before); err == nil {
			return last.Add(-d), nil
		}
	}
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		return time.UnixMicro(int64(seconds * 1e6)), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, usage{fmt.Errorf("%s %q: want a time such as 2006-01-02T15:04:05Z, 1136214245 or -30s", flag, text)}
	}
	return t, nil
}

// lookback spans the gap between two samples of the slowest source, a tick
// that was lost included.
func lookback(interval time.Duration) time.Duration { return max(time.Minute, 3*interval) }
