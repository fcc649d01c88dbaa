// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rezolus/internal/bpf"
)

func newStatus() *cobra.Command {
	var asJSON bool
	var access access
	cmd := &cobra.Command{
		Use:   "status [URL]",
		Short: "Say how a running agent fares",
		Long: `Asks an agent for its samplers and prints those that are not healthy.

Exits with 0 when all is well, 1 when no agent answers, 2 when it was called
wrongly, and 3 when a sampler failed or runs in part; one that the kernel does
not support, or that is switched off, is no failure. With --json it prints all
the agent says, and exits with 0 whatever that is.`,
		Example: `  rezolus status
  rezolus status http://127.0.0.1:4241 --json
  rezolus status https://db1:4241 --ca ca.pem --username me --password-file password`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			address := defaultURL
			if len(args) == 1 {
				address = args[0]
			}
			if err := access.understand(); err != nil {
				return err
			}
			return status(cmd.Context(), cmd.OutOrStdout(), &access, address, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what the agent says")
	access.flags(cmd.Flags())
	return cmd
}

func status(ctx context.Context, w io.Writer, access *access, address string, asJSON bool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	answer, err := access.request(ctx, 10*time.Second, http.MethodGet, address, "status", nil, nil)
	if err != nil {
		return err
	}
	defer answer.Close()
	body, err := io.ReadAll(io.LimitReader(answer, 16<<20))
	if err != nil {
		return fmt.Errorf("read the agent's status: %w", err)
	}
	var d statusDocument
	if json.Unmarshal(body, &d) != nil {
		return fmt.Errorf("what %s answers is not an agent's status", withoutPassword(address))
	}
	if asJSON {
		_, err := w.Write(body)
		return err
	}
	return d.print(w)
}

func (d statusDocument) print(w io.Writer) error {
	counts := map[bpf.State]int{}
	for _, s := range d.Samplers {
		counts[s.State]++
	}
	var parts []string
	for _, state := range []bpf.State{bpf.Healthy, bpf.Degraded, bpf.Unsupported, bpf.Failed, bpf.Shed, bpf.Disabled} {
		if counts[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[state], state))
		}
	}
	fmt.Fprintf(w, "rezolus %s, up %v, %d ticks, %d missed\n%d samplers: %s\n", d.Version,
		time.Duration(d.Uptime*float64(time.Second)).Round(time.Second), d.Ticks, d.Missed, len(d.Samplers), strings.Join(parts, ", "))
	if d.Budget != nil {
		fmt.Fprintln(w, budgetLine(d.Budget))
	}
	for _, s := range d.Hindsight {
		fmt.Fprintln(w, hindsightLine(s))
	}
	for _, s := range d.Samplers {
		if s.State != bpf.Healthy && s.State != bpf.Disabled {
			fmt.Fprintf(w, "%s is %s: %s\n", s.Name, s.State, s.Reason)
		}
	}
	if counts[bpf.Failed]+counts[bpf.Degraded] > 0 {
		return exit(3)
	}
	return nil
}
