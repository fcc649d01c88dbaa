// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"rezolus/internal/agent"
	"rezolus/internal/config"
)

// recordFlags are what `rezolus record` was asked for.
type recordFlags struct {
	url       string
	endpoints []string
	config    string
	output    string
	format    string
	interval  string
	duration  string
	metadata  []string
	node      string
	instance  string
	separate  bool
	local     string
	force     bool
	access    access
	command   []string

	// What they mean.
	every  time.Duration
	meta   map[string]string
	places []*place
}

// ownConfig is --local without a file.
const ownConfig = "the defaults"

func newRecord() *cobra.Command {
	var f recordFlags
	cmd := &cobra.Command{
		Use:   "record [flags] [URL [OUTPUT]] [-- COMMAND ARGS...]",
		Short: "Record agents into a file, for a while or for the life of a command",
		Long: `Follows agents at an interval of its own, which they adopt for as long, and
appends what comes to a file. The file can be read while it grows and after a
crash. An agent that goes away is waited for; what it still has of the time
between is fetched, and the rest is marked as a gap.

Several endpoints, agents or Prometheus ones, become one recording (or one
each, with --separate). Together, their series have the labels endpoint, source
and role; alone, source and role are metadata. An endpoint is URL[,source=NAME][,role=ROLE][,protocol=rezolus|prometheus];
one with a path is Prometheus's, others are asked what they are. While an agent
among them is away, ticks wait for what it brings, in memory and for a minute at
most: killed then, the recorder loses them.

The name of the output says its form: .rzr, .parquet, .csv or .jsonl. All but
the first are made at the end, out of a .rzr file beside it that is there until
then.

Ends after --duration, when the command ends, or on the first SIGINT, SIGTERM
or SIGHUP; a second one ends it at once, and loses nothing either. With a
command, exits as the command does (128 + signal where one killed it), or with
124 when --duration ended it.`,
		Example: `  rezolus record -i 100ms -d 10s -o x.rzr
  rezolus record -i 1ms -o bench.rzr -- ./bench --fast
  rezolus record --url https://db1:4241 --ca ca.pem --username me --password-file pw -m host=db1 -o db1.rzr
  rezolus record --endpoint http://a:4241,role=service --endpoint http://b:9090/metrics,source=vllm -o ab.rzr
  sudo rezolus record --local -d 1m -o here.rzr
  rezolus record --interval 1s --duration 15m http://localhost:4241 rezolus.parquet`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.arguments(cmd, args); err != nil {
				return err
			}
			if err := f.understand(); err != nil {
				return err
			}
			return record(cmd.Context(), &f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", defaultURL, "the agent")
	flags.StringArrayVar(&f.endpoints, "endpoint", nil, "`URL[,source=..][,role=..][,protocol=..]`, may be repeated")
	flags.StringVar(&f.config, "config", "", "TOML `file` with [recording] output, interval, duration, format, separate, ca, username, password_file, ... and [[endpoints]] url, source, role, protocol")
	flags.StringVarP(&f.output, "output", "o", "rezolus.rzr", "the recording")
	flags.StringVarP(&f.format, "format", "f", "", "rzr, parquet, csv or jsonl, if the output's name does not say")
	flags.StringVarP(&f.interval, "interval", "i", "1s", "time from one tick to the next, 1ms to 1h")
	flags.StringVarP(&f.duration, "duration", "d", "", "end after this long")
	flags.StringArrayVarP(&f.metadata, "metadata", "m", nil, "`key=value` to keep in the recording, may be repeated")
	flags.StringVar(&f.node, "node", "", "the same as --metadata node=")
	flags.StringVar(&f.instance, "instance", "", "the same as --metadata instance=")
	flags.BoolVar(&f.separate, "separate", false, "one file for each endpoint: OUTPUT_SOURCE")
	flags.StringVar(&f.local, "local", "", "measure here, without an agent, as a configuration `file` of one says")
	flags.Lookup("local").NoOptDefVal = ownConfig
	flags.BoolVar(&f.force, "force", false, "replace a file of that name")
	f.access.flags(flags)
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
	given := 0
	for _, yes := range []bool{len(args) > 0 || cmd.Flags().Changed("url"), len(f.endpoints) > 0, f.config != "", f.local != ""} {
		if yes {
			given++
		}
	}
	if given > 1 {
		return usage{errors.New("a URL, --endpoint, --config and --local exclude each other; several agents are an --endpoint each")}
	}
	return f.read(cmd.Flags().Changed)
}

// read takes what the command line does not say from the configuration.
func (f *recordFlags) read(said func(flag string) bool) error {
	if f.config == "" {
		return nil
	}
	c, err := config.ReadRecording(f.config)
	if err != nil {
		return usage{err}
	}
	for flag, v := range map[string]struct{ from, to *string }{"output": {&c.Recording.Output, &f.output}, "format": {&c.Recording.Format, &f.format},
		"interval": {&c.Recording.Interval, &f.interval}, "duration": {&c.Recording.Duration, &f.duration}} {
		if *v.from != "" && !said(flag) {
			*v.to = *v.from
		}
	}
	if !said("separate") {
		f.separate = c.Recording.Separate
	}
	f.access.fill("recording", c.Recording.Access, said)
	for _, e := range c.Endpoints {
		f.endpoints = append(f.endpoints, e.Spec())
	}
	return nil
}

// understand makes sense of the flags, before anything is done.
func (f *recordFlags) understand() (err error) {
	if f.every, err = config.ParseDuration(f.interval); err != nil {
		return usage{fmt.Errorf("--interval: %w", err)}
	}
	if f.every < agent.MinInterval || f.every > agent.MaxInterval {
		return usage{fmt.Errorf("interval %v: want %v to %v", f.every, agent.MinInterval, agent.MaxInterval)}
	}
	if f.meta, err = parseMetadata(f.metadata); err != nil {
		return err
	}
	for key, value := range map[string]string{"node": f.node, "instance": f.instance} {
		if value != "" {
			f.meta[key] = value
		}
	}
	if err := f.access.understand(); err != nil {
		return err
	}
	if f.local != "" {
		return nil
	}
	specs := f.endpoints
	if len(specs) == 0 {
		specs = []string{f.url}
	}
	seen := map[string]bool{}
	for _, spec := range specs {
		t, err := parsePlace(spec, len(f.endpoints) > 0)
		if err != nil {
			return err
		}
		if key := t.source + "@" + t.name; seen[key] {
			return hint(usage{fmt.Errorf("two endpoints are %s", t.name)}, "tell them apart by source=")
		} else {
			seen[key] = true
		}
		f.places = append(f.places, t)
	}
	return nil
}

// record does it.
func record(ctx context.Context, f *recordFlags) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	start := func() context.CancelFunc { return func() {} }
	if f.duration != "" {
		limit, err := config.ParseDuration(f.duration)
		if err != nil {
			return usage{fmt.Errorf("--duration: %w", err)}
		}
		start = func() (cancel context.CancelFunc) {
			ctx, cancel = context.WithTimeoutCause(ctx, limit, errTimeUp)
			return cancel
		}
	}
	if f.local == "" { // an endpoint that is waited for has no longer
		defer start()()
	}
	r := newRecorder(f)
	defer r.onSecondSignal()()
	parts, err := r.prepare(ctx)
	if err != nil {
		return errors.Join(err, r.discard())
	}
	if f.local != "" { // to load the probes takes a while
		defer start()()
	}
	// A recorder makes hardly any garbage but when it seals a segment, so to
	// keep little of it takes no CPU time that can be seen, and 4 MB less.
	settle(ctx, tight)
	err = r.run(ctx, parts)
	return errors.Join(err, r.finish(err != nil))
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

// place is an endpoint that was asked for.
type place struct {
	url      *url.URL
	name     string // host:port, and the path if it has a special one
	source   string
	role     string
	protocol string // of protocols; "" is to be found out
}

// What an endpoint may speak.
const (
	speaksRezolus    = "rezolus"
	speaksPrometheus = "prometheus"
)

// parsePlace reads URL[,key=value]...; options says whether there may be any.
func parsePlace(spec string, options bool) (*place, error) {
	address, rest := spec, ""
	if options {
		address, rest, _ = strings.Cut(spec, ",")
	}
	if _, err := endpoint(address, "", nil); err != nil {
		return nil, err
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	t := &place{url: u, name: u.Host}
	if path := strings.TrimSuffix(u.Path, "/"); path != "" && options {
		t.protocol = speaksPrometheus
		if path != "/metrics" {
			t.name += path
		}
	}
	for _, option := range strings.Split(rest, ",") {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "":
		case "source":
			t.source = value
		case "role":
			t.role = value
		case "protocol":
			if value != speaksRezolus && value != speaksPrometheus {
				return nil, usage{fmt.Errorf("endpoint %s: protocol %q: want %s or %s", t.name, value, speaksRezolus, speaksPrometheus)}
			}
			t.protocol = value
		default:
			return nil, usage{fmt.Errorf("endpoint %s: %q: want source=, role= or protocol=", t.name, option)}
		}
	}
	return t, nil
}
