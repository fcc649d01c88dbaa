// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newHindsight() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hindsight CONFIG",
		Short: "Keep the latest ticks of an agent elsewhere, and dump them when it matters",
		Long: `Follows an agent and keeps what it ticks in a ring on disk, as an agent does for
itself by default ([hindsight] in its configuration). An agent that goes away
is waited for, and the gap is marked. CONFIG is a TOML file: docs/hindsight.md.

SIGHUP dumps the ring into a file. With listen in the configuration there is
the page, and dumps over HTTP.`,
		Example: `  rezolus hindsight /etc/rezolus/hindsight.toml
  rezolus hindsight dump --last 15m -o incident.rzr
  rezolus hindsight dump --url http://db1:4241 --start 2026-01-02T15:00:00Z --end 2026-01-02T15:10:00Z
  rezolus hindsight dump --last 5m --there     into a file on the agent's machine`,
		Args: exactly(1, "a configuration file"),
		RunE: func(cmd *cobra.Command, args []string) error { return runRemote(cmd.Context(), args[0]) },
	}
	cmd.AddCommand(newDump())
	return cmd
}

// dumpFlags are what `rezolus hindsight dump` was asked for.
type dumpFlags struct {
	url, output, last, start, end, ring string
	there, force                        bool
	access                              access
}

func newDump() *cobra.Command {
	var f dumpFlags
	cmd := &cobra.Command{
		Use:   "dump",
		Short: "Take a part of a ring as a recording",
		Long: `Asks an agent, or a ` + "`rezolus hindsight`" + `, for what its ring has: the last time,
or from one time to another, exact to the tick; without either it is all.
Recording goes on meanwhile.`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.access.understand(); err != nil {
				return err
			}
			return f.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", defaultURL, "the agent")
	flags.StringVarP(&f.output, "output", "o", "hindsight.rzr", "the recording")
	flags.StringVar(&f.last, "last", "", "so long back from the newest tick, such as 15m")
	flags.StringVar(&f.start, "start", "", "from this `time` on: Unix seconds or RFC 3339")
	flags.StringVar(&f.end, "end", "", "up to this `time`")
	flags.StringVar(&f.ring, "ring", "", "the ring, where there are two: main or fine")
	flags.BoolVar(&f.there, "there", false, "into a file on the agent's machine, whose name is printed")
	flags.BoolVar(&f.force, "force", false, "replace a file of that name")
	f.access.flags(flags)
	return cmd
}

// dumpPatience is how long a ring may look for what is asked for.
const dumpPatience = 2 * time.Minute

func (f *dumpFlags) run(ctx context.Context, w io.Writer) error {
	values := url.Values{}
	for name, value := range map[string]string{"last": f.last, "start": f.start, "end": f.end, "ring": f.ring} {
		if value != "" {
			values.Set(name, value)
		}
	}
	if f.there {
		body, err := f.access.request(ctx, dumpPatience, http.MethodPost, f.url, "dump/file", values, nil)
		if err != nil {
			return err
		}
		defer body.Close()
		_, err = io.Copy(w, body)
		return err
	}
	if ext := filepath.Ext(f.output); ext != ".rzr" {
		return hint(usage{fmt.Errorf("%s: a dump is a .rzr", f.output)}, "rezolus recording convert makes other formats of it")
	}
	if _, err := os.Stat(f.output); err == nil && !f.force {
		return hint(fmt.Errorf("%s is there already", f.output), "name another file with -o, or replace it with --force")
	}
	body, err := f.access.request(ctx, dumpPatience, http.MethodGet, f.url, "dump", values, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	return f.save(body)
}

// save writes the recording under a name of its own until it is whole.
func (f *dumpFlags) save(body io.Reader) error {
	out, err := os.CreateTemp(filepath.Dir(f.output), "."+filepath.Base(f.output)+"-*")
	if err != nil {
		return fmt.Errorf("dump: %w", err)
	}
	defer os.Remove(out.Name()) // is not there any more when all went well
	n, err := io.Copy(out, body)
	err = errors.Join(err, out.Chmod(0o644), out.Sync(), out.Close())
	if err != nil {
		return fmt.Errorf("dump into %s: %w", f.output, err)
	}
	if err := os.Rename(out.Name(), f.output); err != nil {
		return fmt.Errorf("dump: %w", err)
	}
	fmt.Fprintf(os.Stderr, "%s: %d bytes\n", f.output, n)
	return nil
}

func newEvent() *cobra.Command {
	var address, at string
	var access access
	cmd := &cobra.Command{
		Use:   "event TEXT",
		Short: "Add a line of text to what is recorded now",
		Long: `Adds a line of text with a time to an agent's ring, and to every recording that
follows it: a deployment, a test's begin, what somebody saw.`,
		Example: `  rezolus event "deploy of 1.2.3 begins"`,
		Args:    exactly(1, "a text"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := access.understand(); err != nil {
				return err
			}
			values := url.Values{}
			if at != "" {
				values.Set("time", at)
			}
			body, err := access.request(cmd.Context(), 10*time.Second, http.MethodPost, address, "events", values, strings.NewReader(args[0]))
			if err != nil {
				return err
			}
			return body.Close()
		},
	}
	cmd.Flags().StringVar(&address, "url", defaultURL, "the agent")
	cmd.Flags().StringVar(&at, "time", "", "when it was: Unix seconds or RFC 3339; now if not given")
	access.flags(cmd.Flags())
	return cmd
}

// writeJSON answers with v.
func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // the client went away: nobody to tell
}
