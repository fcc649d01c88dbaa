// SPDX-License-Identifier: Apache-2.0

package query

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Formats are the names of the forms that Format writes.
var Formats = []string{"table", "json", "csv"}

// Format writes the result in one of Formats:
//
//   - table, for people. What all series have in common stands above it. A
//     matrix is a row per time and a column per series while that fits
//     tableWidth, else a row per series with its extremes.
//   - json, the data of the HTTP API, and a newline.
//   - csv, a row per value (per bucket of a histogram) with its time in RFC
//     3339 and a column per label, for programs.
//
// Warnings and infos are not written.
func Format(w io.Writer, r *Result, format string) error {
	switch format {
	case "json":
		_, err := w.Write(append(r.AppendJSON(nil), '\n'))
		return err
	case "csv":
		return formatCSV(w, r)
	case "table":
		return formatTable(w, r)
	}
	return fmt.Errorf("format %q: want one of %s", format, strings.Join(Formats, ", "))
}

func timeString(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// labelNames are the names of all labels in the result, the metric's first.
func labelNames(r *Result) []string {
	var names []string
	for _, s := range r.Series {
		for _, l := range s.Labels {
			if !slices.Contains(names, l.Name) {
				names = append(names, l.Name)
			}
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if (a == nameLabel) != (b == nameLabel) {
			if a == nameLabel {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return names
}

func formatCSV(w io.Writer, r *Result) error {
	c := csv.NewWriter(w)
	names := labelNames(r)
	bucketed := slices.ContainsFunc(r.Series, func(s Series) bool { return len(s.Histograms) > 0 })
	head := append([]string{"time"}, names...)
	if bucketed {
		head = append(head, "lower", "upper")
	}
	c.Write(append(head, "value"))
	if r.Type == String {
		c.Write([]string{timeString(r.Time), r.Text})
	}
	number := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	for _, s := range r.Series {
		row := make([]string, 1, len(names)+4)
		for _, n := range names {
			row = append(row, s.Label(n))
		}
		for _, p := range s.Points {
			row[0] = timeString(p.T)
			cells := row
			if bucketed {
				cells = append(cells, "", "")
			}
			c.Write(append(cells, number(p.V)))
		}
		for _, p := range s.Histograms {
			row[0] = timeString(p.T)
			for _, b := range p.H.Buckets {
				c.Write(append(row, number(b.Lower), number(b.Upper), number(b.Count)))
			}
		}
	}
	c.Flush() // keeps the first error of all writes
	return c.Error()
}
