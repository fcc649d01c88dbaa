// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"rezolus/internal/bpf"
	"rezolus/internal/config"
	"rezolus/internal/host"
)

func newDoctor() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor [CONFIG]",
		Short: "Say what can run on this machine, how, and what to do about the rest",
		Long: `Lists what the kernel offers, and loads and attaches every probe for a moment
to say by which hook each sampler runs, what it costs, or why it cannot run and
what would help. Exits with 3 when a sampler that is switched on fails; one
that this kernel does not support is no failure.`,
		Example: "  sudo rezolus doctor\n  sudo rezolus doctor --json | jq '.samplers[] | select(.state != \"healthy\")'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := config.Default()
			if len(args) == 1 {
				var err error
				if c, err = config.Read(args[0]); err != nil {
					return usage{err}
				}
			}
			return doctor(cmd.OutOrStdout(), c, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// diagnosis is what doctor prints.
type diagnosis struct {
	Host        host.Facts          `json:"host"`
	Cgroups     cgroupStatus        `json:"cgroups"`
	KernelBytes uint64              `json:"kernel_bytes"`
	Samplers    []bpf.SamplerStatus `json:"samplers"`
}

func doctor(w io.Writer, c *config.Config, asJSON bool) error {
	h, err := build(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer h.close()
	d := diagnosis{Host: host.Examine(), Cgroups: h.cgroupStatus(), KernelBytes: h.kernelBytes(), Samplers: h.samplers()}
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		err = e.Encode(d)
	} else {
		err = d.print(w)
	}
	for _, s := range d.Samplers {
		if err == nil && (s.State == bpf.Failed || s.State == bpf.Degraded) {
			err = exit(3)
		}
	}
	return err
}

func (d diagnosis) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range d.Host.Lines() {
		fmt.Fprintf(t, "%s\t%s\n", f.Name, f.Value)
	}
	fmt.Fprintf(t, "cgroups\t%s, %d tracked\n", d.Cgroups.Hierarchy, d.Cgroups.Tracked)
	fmt.Fprintf(t, "memory of the probes\t%d KiB in the kernel\n\n", d.KernelBytes>>10)
	fmt.Fprintf(t, "SAMPLER\tSTATE\tHOOKS\tINSTRUCTIONS\n")
	for _, s := range d.Samplers {
		var hooks, sizes []string
		for _, p := range s.Programs {
			if p.Hook != "" {
				hooks = append(hooks, p.Hook)
			}
			if p.Instructions > 0 {
				sizes = append(sizes, fmt.Sprint(p.Instructions))
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", s.Name, s.State, shorten(hooks), strings.Join(sizes, "+"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, s := range d.Samplers {
		if s.Reason != "" && s.State != bpf.Disabled {
			fmt.Fprintf(w, "\n%s is %s: %s\n", s.Name, s.State, s.Reason)
		}
	}
	return nil
}

// shorten is the first of many hooks, and how many more there are; --json has
// them all.
func shorten(hooks []string) string {
	if len(hooks) > 2 {
		return fmt.Sprintf("%s and %d more", hooks[0], len(hooks)-1)
	}
	return strings.Join(hooks, " ")
}

func (h *house) cgroupStatus() cgroupStatus {
	s := cgroupStatus{Hierarchy: host.CgroupMode().String()}
	if h.things != nil {
		s.Overflow = h.things.Overflow()
	}
	if len(h.trackers) > 0 {
		members := h.trackers[0].Members()
		s.Tracked = len(members)
		for _, g := range members[:min(len(members), h.config.Cgroups.Max)] {
			s.Members = append(s.Members, cgroupMember{g.Path, g.Unit(), g.Container()})
		}
	}
	return s
}
