// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// tableWidth is how wide a table may become before a matrix is summarized.
const tableWidth = 100

// table is text in rows of equally many cells, the first of them the heads.
type table struct {
	above string // what stands above the heads
	rows  [][]string
	left  int // the first columns, which are text; the others are numbers
}

func formatTable(w io.Writer, r *Result) error {
	switch {
	case r.Type == String:
		_, err := fmt.Fprintln(w, r.Text)
		return err
	case r.Type == Scalar:
		_, err := fmt.Fprintln(w, shortFloat(r.Series[0].Points[0].V))
		return err
	case len(r.Series) == 0:
		_, err := fmt.Fprintln(w, "no data")
		return err
	}
	common, names := commonLabels(r)
	var t table
	if r.Type == Vector {
		t = vectorTable(r, names)
		common += " at " + timeString(seriesTime(&r.Series[0]))
	} else if t = matrixTable(r, names); t.width() > tableWidth {
		t = summaryTable(r, names)
	}
	t.above = strings.TrimSpace(common)
	return t.write(w)
}

// commonLabels is what all series have in common, as a selector, and the
// names of the other labels.
func commonLabels(r *Result) (selector string, names []string) {
	var metricName string
	var equal []string
	for _, n := range labelNames(r) {
		v := r.Series[0].Label(n)
		switch {
		case slices.ContainsFunc(r.Series, func(s Series) bool { return s.Label(n) != v }):
			names = append(names, n)
		case n == nameLabel:
			metricName = v
		default:
			equal = append(equal, n+"="+strconv.Quote(v))
		}
	}
	if len(equal) > 0 {
		return metricName + "{" + strings.Join(equal, ", ") + "}", names
	}
	return metricName, names
}

func seriesTime(s *Series) int64 {
	if len(s.Points) > 0 {
		return s.Points[0].T
	}
	return s.Histograms[0].T
}

func heads(names []string, more ...string) []string {
	out := slices.Clone(names)
	for i, n := range out {
		if n == nameLabel {
			out[i] = "metric"
		}
	}
	return append(out, more...)
}

func vectorTable(r *Result, names []string) table {
	t := table{rows: [][]string{heads(names, "value")}, left: len(names)}
	for _, s := range r.Series {
		var row []string
		for _, n := range names {
			row = append(row, s.Label(n))
		}
		cell := ""
		if len(s.Points) > 0 {
			cell = shortFloat(s.Points[0].V)
		} else {
			cell = shortHistogram(&s.Histograms[0].H)
		}
		t.rows = append(t.rows, append(row, cell))
	}
	return t
}

// matrixTable has a row per time. A series' head are its values of names.
func matrixTable(r *Result, names []string) table {
	head := []string{"time"}
	cells := map[int64][]string{}
	put := func(i int, ms int64, cell string) {
		if cells[ms] == nil {
			cells[ms] = make([]string, len(r.Series))
		}
		cells[ms][i] = cell
	}
	for i, s := range r.Series {
		var parts []string
		for _, n := range names {
			parts = append(parts, s.Label(n))
		}
		if len(names) == 0 {
			parts = []string{"value"}
		}
		head = append(head, strings.Join(parts, " "))
		for _, p := range s.Points {
			put(i, p.T, shortFloat(p.V))
		}
		for _, p := range s.Histograms {
			put(i, p.T, shortHistogram(&p.H))
		}
	}
	t := table{rows: [][]string{head}, left: 1}
	for _, ms := range slices.Sorted(maps.Keys(cells)) {
		t.rows = append(t.rows, append([]string{timeString(ms)}, cells[ms]...))
	}
	return t
}

// summaryTable has a row per series.
func summaryTable(r *Result, names []string) table {
	t := table{rows: [][]string{heads(names, "points", "min", "mean", "max", "last")}, left: len(names)}
	for _, s := range r.Series {
		var row []string
		for _, n := range names {
			row = append(row, s.Label(n))
		}
		if n := len(s.Histograms); n > 0 {
			row = append(row, strconv.Itoa(n), "", "", "", shortHistogram(&s.Histograms[n-1].H))
		} else {
			least, most, sum := math.Inf(1), math.Inf(-1), 0.0
			for _, p := range s.Points {
				least, most, sum = min(least, p.V), max(most, p.V), sum+p.V
			}
			n := len(s.Points)
			row = append(row, strconv.Itoa(n), shortFloat(least), shortFloat(sum/float64(n)), shortFloat(most), shortFloat(s.Points[n-1].V))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// width is how many columns of the terminal the table takes.
func (t *table) width() int {
	total := -2
	for _, w := range t.widths() {
		total += w + 2
	}
	return total
}

func (t *table) widths() []int {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// write aligns text to the left and numbers to the right.
func (t *table) write(w io.Writer) error {
	var b strings.Builder
	if t.above != "" {
		fmt.Fprintln(&b, t.above)
	}
	widths := t.widths()
	for _, row := range t.rows {
		for i, cell := range row {
			width := widths[i]
			if i < t.left {
				width = -width
			}
			if i > 0 {
				b.WriteString("  ")
			}
			fmt.Fprintf(&b, "%*s", width, cell)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// shortFloat has six digits, which is as exact as a table can be read.
func shortFloat(f float64) string {
	switch abs := math.Abs(f); {
	case f == math.Trunc(f) && abs < 1e15:
		return strconv.FormatFloat(f, 'f', -1, 64)
	case abs >= 1e5 && abs < 1e15:
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', 6, 64)
}

// shortHistogram is a histogram in a cell: how much, and where the most is.
func shortHistogram(h *Histogram) string {
	if len(h.Buckets) == 0 {
		return "0 values"
	}
	at := func(q float64) string {
		rank := q * h.Count
		for _, b := range h.Buckets {
			if rank -= b.Count; rank <= 0 {
				return shortFloat(b.Upper)
			}
		}
		return shortFloat(h.Buckets[len(h.Buckets)-1].Upper)
	}
	return fmt.Sprintf("%s values, p50 %s, p99 %s", shortFloat(h.Count), at(0.5), at(0.99))
}
