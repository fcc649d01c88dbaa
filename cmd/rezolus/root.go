// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

const defaultURL = "http://127.0.0.1:4241"

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "rezolus [CONFIG]",
		Short: "Linux performance telemetry that shows what averages hide",
		Long: `Counts and times what the kernel does, with eBPF, and shows it live.

Without a subcommand rezolus is the agent: it reads its samplers, keeps the
last minutes in memory and the last day on disk, and serves a page, the
Prometheus query API, /metrics and the stream that recorders follow. It needs root. CONFIG is a TOML file;
without one the defaults hold.`,
		Example: `  sudo rezolus                          the agent, then open the address it prints
  sudo rezolus /etc/rezolus/agent.toml  with a configuration
  rezolus record -d 10s -o x.rzr        record a running agent for ten seconds
  rezolus record -o x.rzr -- ./bench    ... for as long as a command runs
  rezolus view x.rzr                    look at a recording
  rezolus query x.rzr 'histogram_quantile(0.99, rate(scheduler_runqueue_latency[5s]))'
  rezolus hindsight dump --last 15m -o x.rzr   what happened in the last quarter of an hour
  sudo rezolus doctor                   which probes can run here, and why not`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage{fmt.Errorf("%d arguments; want at most one, a configuration file", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runAgent(cmd.Context(), args) },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return hint(usage{err}, "%s --help", cmd.CommandPath())
	})
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newRecord(), newQuery(), newView(), newDoctor(), newStatus(), newMetrics(), newRecording(), newReplay(), newHindsight(), newEvent(), &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  exactly(0, "no arguments"),
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "rezolus %s %s/%s %s\n", version, runtime.GOOS, runtime.GOARCH, runtime.Version())
		},
	})
	return root
}

// exactly is a check of the number of arguments that exits as a wrong call.
func exactly(n int, want string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return hint(usage{fmt.Errorf("%d arguments; want %s", len(args), want)}, "%s --help", cmd.CommandPath())
		}
		return nil
	}
}
