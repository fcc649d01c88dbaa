// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"rezolus/internal/export/parquet"
	"rezolus/internal/export/text"
	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// conversion is what `recording convert` was asked for.
type conversion struct {
	target
	selection
	format    string
	tidy      bool
	windows   bool
	quantiles []string
	metadata  []string
}

// extensions are the forms by the ends of names.
var extensions = map[string]string{".rzr": "rzr", ".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}

var conversionFormats = []string{"rzr", "parquet", "csv", "jsonl"}

func newRecordingConvert() *cobra.Command {
	var c conversion
	cmd := &cobra.Command{
		Use:   "convert FILE -o OUT",
		Short: "Convert between recordings, Parquet, CSV and JSON lines",
		Long: `Converts by the ends of the names: .rzr and .parquet both ways, and to .csv and
.jsonl, which are for a selection. "-o -" writes CSV or JSON lines to standard
output.

Parquet has one row a tick and one column a series, as the Rust implementation
writes it; with --tidy, columns have readable names and the time is a timestamp,
for DuckDB, pandas and ClickHouse. docs/parquet.md describes them all.`,
		Example: `  rezolus recording convert x.rzr -o x.parquet
  rezolus recording convert x.rzr -o x.parquet --tidy
  rezolus recording convert rezolus.parquet -o x.rzr
  rezolus recording convert x.rzr -o x.csv --match 'cpu_usage{state="user"}' --last 1m
  rezolus recording convert x.rzr -o - --format jsonl --match 'scheduler_*' --quantiles 0.5,0.99 | jq .`,
		Args: exactly(1, "a recording"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd, args[0]) },
	}
	c.target.flags(cmd)
	c.selection.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&c.format, "format", "", strings.Join(conversionFormats, ", ")+": for a name that does not say it")
	f.BoolVar(&c.tidy, "tidy", false, "Parquet with readable names of columns")
	f.BoolVar(&c.windows, "windows", false, "Parquet with the times at which each source was read")
	f.StringSliceVar(&c.quantiles, "quantiles", nil, "CSV and JSON lines: of histograms these, such as 0.5,0.99, and not the buckets")
	f.StringArrayVarP(&c.metadata, "metadata", "m", nil, "Parquet: `key=value` to keep in the file, may be repeated")
	return cmd
}

// form is the form to write.
func (c *conversion) form() (string, error) {
	form := c.format
	if form == "" {
		form = extensions[strings.ToLower(filepath.Ext(c.path))]
	}
	if form == "" && c.path == "-" {
		return "", hint(usage{errors.New("-o - does not say which form")}, "add --format csv or --format jsonl")
	}
	if !slices.Contains(conversionFormats, form) {
		what := fmt.Errorf("%s: the name does not say which form", c.path)
		if c.format != "" {
			what = fmt.Errorf("--format %q", c.format)
		}
		return "", hint(usage{what}, "want a name that ends in .rzr, .parquet, .csv or .jsonl, or --format with one of these")
	}
	textual := form == "csv" || form == "jsonl"
	switch {
	case c.path == "-" && !textual:
		return "", usage{fmt.Errorf("-o - is for CSV and JSON lines; name a file for %s", form)}
	case form != "parquet" && (c.tidy || c.windows || len(c.metadata) > 0):
		return "", usage{fmt.Errorf("--tidy, --windows and --metadata are for Parquet, not for %s", form)}
	case !textual && len(c.quantiles) > 0:
		return "", usage{fmt.Errorf("--quantiles is for CSV and JSON lines, not for %s", form)}
	}
	return form, nil
}

func (c *conversion) run(cmd *cobra.Command, path string) error {
	if c.path == "" {
		return c.check()
	}
	form, err := c.form()
	if err == nil && c.path != "-" {
		err = c.check()
	}
	if err != nil {
		return err
	}
	e, err := c.extract(cmd, path)
	if err != nil {
		return err
	}
	defer e.in.Close()
	r := &conversionRun{c, e}
	if c.path == "-" {
		_, err := r.text(cmd.Context(), cmd.OutOrStdout(), form)
		return err
	}
	var did string
	err = c.produce(func(out string) error {
		did, err = r.file(cmd.Context(), out, form)
		return err
	})
	if err != nil {
		return err
	}
	r.in.complain(cmd.ErrOrStderr())
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", c.path, did)
	return nil
}

// conversionRun is a conversion with all it needs.
type conversionRun struct {
	*conversion
	extract
}

// file writes the form into a file, and says what it did.
func (r *conversionRun) file(ctx context.Context, out, form string) (did string, err error) {
	if form == "rzr" {
		made, err := copyPart(ctx, r.extract, out)
		return fmt.Sprintf("%d ticks, %d bytes", made.Ticks, made.Bytes), err
	}
	err = writeFile(out, func(f *os.File) error {
		if form == "parquet" {
			did, err = r.parquet(ctx, f)
			return err
		}
		rows, err := r.text(ctx, f, form)
		did = fmt.Sprintf("%d rows", rows)
		return err
	})
	return did, err
}

func (r *conversionRun) parquet(ctx context.Context, w io.Writer) (string, error) {
	o := parquet.Options{Form: parquet.Wide, Windows: r.windows, Metadata: runsMetadata(r.in.Info())}
	if r.tidy {
		o.Form = parquet.Tidy
	}
	given, err := parseMetadata(r.metadata)
	if err != nil {
		return "", err
	}
	maps.Copy(o.Metadata, given)
	out, err := parquet.NewWriter(w, o)
	if err != nil {
		return "", err
	}
	for _, e := range r.in.Info().Events {
		if e.Time >= r.from && e.Time <= r.to {
			out.Event(parquet.Event(e))
		}
	}
	gaps := r.in.Info().Gaps
	slices.SortStableFunc(gaps, func(a, b store.Gap) int { return cmp.Compare(a.From, b.From) })
	passed := func(at int64) {
		for ; len(gaps) > 0 && gaps[0].From <= at; gaps = gaps[1:] {
			if gaps[0].To >= r.from {
				out.Gap(parquet.Gap(gaps[0]))
			}
		}
	}
	err = r.in.each(ctx, r.from, r.to, r.want, func(s *metric.Snapshot) error {
		passed(s.Wall)
		return out.Put(s)
	})
	if err != nil {
		return "", err
	}
	passed(r.to)
	made, err := out.Close()
	return fmt.Sprintf("%d ticks, %d columns, %d bytes", made.Ticks, made.Columns, made.Bytes), err
}

// text writes CSV or JSON lines.
func (r *conversionRun) text(ctx context.Context, w io.Writer, form string) (rows uint64, err error) {
	o := text.Options{Format: text.CSV, Want: r.want}
	if form == "jsonl" {
		o.Format = text.JSONLines
	}
	for _, q := range r.quantiles {
		v, err := strconv.ParseFloat(q, 64)
		if err != nil {
			return 0, usage{fmt.Errorf("--quantiles: %q is no number from 0 to 1", q)}
		}
		o.Quantiles = append(o.Quantiles, v)
	}
	out, err := text.NewWriter(w, o)
	if err != nil {
		return 0, usage{fmt.Errorf("--quantiles: %w", err)}
	}
	if err := r.in.each(ctx, r.from, r.to, r.want, out.Put); err != nil {
		return 0, err
	}
	err = out.Close()
	return out.Rows(), err
}
