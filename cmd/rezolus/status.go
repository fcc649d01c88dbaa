// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"rezolus/internal/bpf"
)

func newStatus() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status [URL]",
		Short: "Say how a running agent fares",
		Long: `Asks an agent for its samplers and prints those that are not healthy. Exits
with 3 when one failed; a sampler that the kernel does not support is no
failure. With --json it prints all the agent says.`,
		Example: "  rezolus status\n  rezolus status http://127.0.0.1:4241 --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			address := defaultURL
			if len(args) == 1 {
				address = args[0]
			}
			return status(cmd.OutOrStdout(), address, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what the agent says")
	return cmd
}

// endpoint is the agent's URL with a path.
func endpoint(address, path string, values url.Values) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", hint(usage{fmt.Errorf("%q is not the URL of an agent", address)}, "it is like %s", defaultURL)
	}
	u = u.JoinPath(path)
	u.RawQuery = values.Encode()
	return u.String(), nil
}

// unreachable explains why nobody answers.
func unreachable(address string, err error) error {
	err = fmt.Errorf("no agent at %s: %w", address, err)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return hint(err, "start one with: sudo rezolus")
	}
	return err
}

func status(w io.Writer, address string, asJSON bool) error {
	u, err := endpoint(address, "status", nil)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get(u)
	if err != nil {
		return unreachable(address, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil {
		return err
	}
	var d statusDocument
	if response.StatusCode != http.StatusOK || json.Unmarshal(body, &d) != nil {
		return fmt.Errorf("%s answers %s, which is not an agent's status", u, response.Status)
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
