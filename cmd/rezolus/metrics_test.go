// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rezolus/internal/config"
	"rezolus/internal/hindsight"
	"rezolus/internal/source"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

const docs = "../../docs"

// table reads a file of docs/data: lines of fields with tabs between.
func table(t *testing.T, name string, fields int) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, "data", name))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		row := strings.Split(line, "\t")
		if len(row) != fields {
			t.Fatalf("%s:%d: %d fields, want %d", name, i+1, len(row), fields)
		}
		rows = append(rows, row)
	}
	return rows
}

// TestTheMetricsPage holds docs/metrics.md against the schemas, and says what
// docs/data lacks. With -update it writes the page.
func TestTheMetricsPage(t *testing.T) {
	all, err := catalogue()
	if err != nil {
		t.Fatal(err)
	}
	h := &house{config: config.Default()}
	defer h.close()
	h.config.Probes.Directory = ""
	if err := h.findProbes(); err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	page.WriteString(head)
	h.writeSamplers(t, &page, all)
	writeCatalogue(&page, all)
	writeOriginal(t, &page, all)
	file := filepath.Join(docs, "metrics.md")
	if *update {
		if err := os.WriteFile(file, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	is, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(is, page.Bytes()) {
		t.Errorf("docs/metrics.md is not what the schemas make (%v); run: go test ./cmd/rezolus -run TestTheMetricsPage -update", err)
	}
}

const head = `<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Made by TestTheMetricsPage of cmd/rezolus from the schemas and docs/data. -->
# Metrics

Every metric there can be. ` + "`rezolus doctor`" + ` says which samplers run on a
machine, by which hook, and why the others do not.

## Samplers

A sampler is a switch in the configuration. "Every" is how often it is read at
most, unless the configuration says otherwise; probes are read at every tick.
A sampler in italics is off unless it is switched on.

| sampler | source: hooks best first, or what is read | kernels | cost | every |
|---|---|---|---|---|
`

func (h *house) writeSamplers(t *testing.T, w *bytes.Buffer, all []entry) {
	facts := map[string][]string{}
	for _, row := range table(t, "samplers.tsv", 3) {
		facts[row[0]] = row[1:]
	}
	plain := map[string]source.Sampler{
		cpuUsage: {Reads: "/proc/stat, cpu.stat of cgroups", Every: 100e6}, cpuCores: {Reads: "/proc/stat", Every: 100e6},
		ledger:            {Reads: "the agent's own ticks", Every: ledgerInterval},
		hindsight.Sampler: {Reads: "the agent's own rings", Every: time.Second},
	}
	for _, s := range h.plain() {
		plain[s.Name] = s
	}
	var names []string
	for _, e := range all {
		names = merge(names, e.Samplers)
	}
	for _, name := range names {
		fact := facts[name]
		if fact == nil {
			t.Errorf("docs/data/samplers.tsv has no line for sampler %s", name)
			continue
		}
		delete(facts, name)
		from, every, shown := cmp.Or(h.hooks(name), "getrusage(2), /proc/self/statm"), "tick", name
		if s, ok := plain[name]; ok {
			from = s.Reads
			every = fmt.Sprint(max(s.Every, leastPace))
			if s.Off {
				shown = "*" + name + "*"
			}
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", shown, from, fact[0], fact[1], every)
	}
	for name := range facts {
		if name != "scrape" { // it is there once an endpoint is configured
			t.Errorf("docs/data/samplers.tsv has sampler %s, which has no metrics", name)
		}
	}
}

// hooks lists the hooks of a sampler, each by its ways.
func (h *house) hooks(sampler string) string {
	var all []string
	for _, o := range h.objects {
		for _, hook := range o.HooksOf(sampler) {
			var ways []string
			for _, way := range hook.Ways {
				if !strings.Contains(way, "net_dev_xmit_timeout") || strings.Contains(sampler, "network") { // a rung that does nothing
					ways = append(ways, way)
				}
			}
			all = append(all, strings.Join(ways, ", "))
		}
	}
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), "; ")
}

func writeCatalogue(w *bytes.Buffer, all []entry) {
	w.WriteString("\n## Metrics\n\n| metric | kind | unit | labels | sampler | |\n|---|---|---|---|---|---|\n")
	for _, e := range all {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", e.Name, e.Kind, e.Unit, strings.Join(e.Labels, ", "), strings.Join(e.Samplers, ", "),
			strings.ReplaceAll(e.Help, "|", "\\|"))
	}
}

func writeOriginal(t *testing.T, w *bytes.Buffer, all []entry) {
	w.WriteString("\n## The original's\n\nEach metric of Rezolus 5 and which of these it is.\n\n| original | here | difference |\n|---|---|---|\n")
	rows := table(t, "original.tsv", 3)
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	for _, row := range rows {
		known := slices.ContainsFunc(all, func(e entry) bool { return e.Name == row[1] })
		if !known && row[1] != "-" {
			t.Errorf("docs/data/original.tsv: %s is said to be %s, which there is not", row[0], row[1])
		}
		if row[1] == row[0] {
			row[1] = "the same"
		} else if row[1] == "-" {
			row[1] = "none"
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", row[0], row[1], row[2])
	}
}
