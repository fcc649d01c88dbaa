// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rezolus/internal/config"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

// recordFlags are what `rezolus record` was asked for.
type recordFlags struct {
	url      string
	output   string
	interval string
	duration string
	metadata []string
	force    bool
	command  []string
}

func newRecord() *cobra.Command {
	var f recordFlags
	cmd := &cobra.Command{
		Use:   "record [flags] [URL [OUTPUT]] [-- COMMAND ARGS...]",
		Short: "Record an agent into a file, for a while or for the life of a command",
		Long: `Follows an agent at an interval of its own, which the agent adopts for as long,
and appends what comes to a file. The file can be read while it grows and
after a crash. An agent that goes away is waited for, and the gap is marked.

Ends after --duration, when the command ends, or on the first SIGINT or
SIGTERM; a second one ends it at once, and loses nothing either. With a
command, exits as the command does (128 + signal where one killed it), or with
124 when --duration ended it.`,
		Example: `  rezolus record -i 100ms -d 10s -o x.rzr
  rezolus record -i 1ms -o bench.rzr -- ./bench --fast
  rezolus record --url http://db1:4241 -m host=db1 -o db1.rzr
  rezolus record --interval 1s --duration 15m http://localhost:4241 rezolus.rzr`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.arguments(cmd, args); err != nil {
				return err
			}
			return record(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", defaultURL, "the agent")
	flags.StringVarP(&f.output, "output", "o", "rezolus.rzr", "the recording")
	flags.StringVarP(&f.interval, "interval", "i", "1s", "time from one tick to the next, 1ms to 1h")
	flags.StringVarP(&f.duration, "duration", "d", "", "end after this long")
	flags.StringArrayVarP(&f.metadata, "metadata", "m", nil, "`key=value` to keep in the recording, may be repeated")
	flags.BoolVar(&f.force, "force", false, "replace a file of that name")
	return cmd
}

// arguments sorts the positional ones: the original's URL and OUTPUT before
// "--", the command after it.
func (f *recordFlags) arguments(cmd *cobra.Command, args []string) error {
	if n := cmd.ArgsLenAtDash(); n >= 0 {
		args, f.command = args[:n], args[n:]
		if len(f.command) == 0 {
			return usage{errors.New("nothing after --; want a command")}
		}
	}
	for i, flag := range []string{"url", "output"} {
		if len(args) <= i {
			break
		}
		if cmd.Flags().Changed(flag) {
			return usage{fmt.Errorf("%q and --%s both name the %s", args[i], flag, flag)}
		}
		*[]*string{&f.url, &f.output}[i] = args[i]
	}
	if len(args) > 2 {
		return hint(usage{fmt.Errorf("unexpected argument %q", args[2])}, "a command to run comes after --")
	}
	return nil
}

// record does it.
func record(ctx context.Context, f recordFlags) error {
	interval, err := config.ParseDuration(f.interval)
	if err != nil {
		return usage{fmt.Errorf("--interval: %w", err)}
	}
	if f.duration != "" {
		limit, err := config.ParseDuration(f.duration)
		if err != nil {
			return usage{fmt.Errorf("--duration: %w", err)}
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errTimeUp)
		defer cancel()
	}
	meta, err := parseMetadata(f.metadata)
	if err != nil {
		return err
	}
	follower, err := follow(ctx, f.url, interval, meta)
	if err != nil {
		return err
	}
	writer, err := createRecording(f, interval, meta)
	if err != nil {
		return errors.Join(err, follower.Close())
	}
	r := &recorder{url: f.url, interval: interval, meta: meta, writer: writer, follower: follower, began: time.Now()}
	err = r.run(ctx, f.command)
	if closeErr := writer.Close(); closeErr != nil && err == nil {
		err = fmt.Errorf("finish recording: %w", closeErr)
	}
	r.summary(f.output)
	return err
}

// errTimeUp is the cause of a context that --duration ended.
var errTimeUp = errors.New("the duration is over")

func parseMetadata(pairs []string) (map[string]string, error) {
	meta := map[string]string{}
	for _, p := range pairs {
		key, value, ok := strings.Cut(p, "=")
		if !ok || key == "" {
			return nil, usage{fmt.Errorf("--metadata %q: want key=value", p)}
		}
		meta[key] = value
	}
	return meta, nil
}

func createRecording(f recordFlags, interval time.Duration, meta map[string]string) (*store.Writer, error) {
	if f.force {
		if err := os.Remove(f.output); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("replace recording: %w", err)
		}
	}
	w, err := store.Create(vfs.OS, f.output, store.WriterOptions{
		EncoderOptions: store.EncoderOptions{Interval: interval, Meta: meta}})
	if errors.Is(err, fs.ErrExist) {
		return nil, hint(fmt.Errorf("%s is there already", f.output), "name another file with -o, or replace it with --force")
	}
	return w, err
}
