// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"rezolus/internal/agent"
	"rezolus/internal/analyze"
	"rezolus/internal/budget"
	"rezolus/internal/config"
	"rezolus/internal/gather"
	"rezolus/internal/hindsight"
	"rezolus/internal/metric"
	"rezolus/internal/source/cgroupfs"
	"rezolus/internal/source/procfs"
)

func newMetrics() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "metrics [TEXT]",
		Short: "List every metric there can be, or those whose name or help has a text",
		Long: `Lists the metrics of all samplers, with kind, unit, labels and the sampler that
switches each. Which of them this machine has is what ` + "`rezolus doctor`" + ` says.`,
		Example: "  rezolus metrics tcp\n  rezolus metrics --json | jq '.[] | select(.kind == \"histogram\") | .name'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := catalogue()
			if err != nil {
				return err
			}
			text := strings.Join(args, "")
			all = slices.DeleteFunc(all, func(e entry) bool {
				return !strings.Contains(e.Name, text) && !strings.Contains(e.Help, text)
			})
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(all)
			}
			return printMetrics(cmd.OutOrStdout(), all)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// entry is a metric of the catalogue.
type entry struct {
	Name     string   `json:"name"`
	Kind     string   `json:"kind"`
	Unit     string   `json:"unit,omitempty"`
	Labels   []string `json:"labels,omitempty"`
	Help     string   `json:"help"`
	Samplers []string `json:"samplers"`
}

// catalogue lists every metric that a build of this agent can have, sorted by
// name. A metric of two samplers is one.
func catalogue() ([]entry, error) {
	h := &house{config: config.Default(), log: slog.New(slog.DiscardHandler)}
	defer h.close()
	h.config.Probes.Directory = ""
	if err := h.findProbes(); err != nil {
		return nil, err
	}
	byName := map[string]*entry{}
	add := func(descs []*metric.Desc) {
		for _, d := range descs {
			e := byName[d.Name]
			if e == nil {
				e = &entry{Name: d.Name, Kind: d.Kind.String(), Unit: string(d.Unit), Help: d.Help}
				byName[d.Name] = e
			}
			e.Labels = merge(e.Labels, d.Keys)
			e.Samplers = merge(e.Samplers, []string{d.Sampler})
		}
	}
	for _, o := range h.objects {
		add(o.Descs())
	}
	for _, s := range h.plain() {
		add(s.Descs)
	}
	add(procfs.StatDescs())
	add(cgroupfs.CPUDescs())
	add(agent.SelfDescs())
	add(analyze.LedgerDescs())
	add(budget.Descs())
	add(hindsight.Descs())
	add(gather.Descs())
	var all []entry
	for _, e := range byName {
		all = append(all, *e)
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// merge is the sorted union.
func merge(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

func printMetrics(w io.Writer, all []entry) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "METRIC\tKIND\tUNIT\tLABELS\tSAMPLER\tHELP")
	for _, e := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", e.Name, e.Kind, cmp.Or(e.Unit, "-"), cmp.Or(strings.Join(e.Labels, ","), "-"),
			strings.Join(e.Samplers, ","), e.Help)
	}
	return t.Flush()
}
