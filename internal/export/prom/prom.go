// SPDX-License-Identifier: Apache-2.0

// Package prom writes a snapshot in the text formats that Prometheus scrapes:
// its own, version 0.0.4, and OpenMetrics 1.0.
//
// Names and label names are those of the metrics, in both formats: a counter
// ends in _total only where OpenMetrics demands it. Values are in the metrics'
// own units. A histogram becomes a classic one with a bucket for each power
// of two within a range, whose bounds are exact; its sum is an estimate from
// the middles of its buckets.
package prom

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"

	"rezolus/internal/metric"
)

// Format is one of the two.
type Format int

// The formats.
const (
	Text Format = iota
	OpenMetrics
)

// ContentType is the value of the header of that name.
func (f Format) ContentType() string {
	if f == OpenMetrics {
		return "application/openmetrics-text; version=1.0.0; charset=utf-8"
	}
	return "text/plain; version=0.0.4; charset=utf-8"
}

// Negotiate chooses the format for a request's Accept header: OpenMetrics when
// it is asked for, and not less wanted than text.
func Negotiate(accept string) Format {
	best, format := -1.0, Text
	for part := range strings.SplitSeq(accept, ",") {
		kind, parameters, _ := strings.Cut(part, ";")
		q := 1.0
		for p := range strings.SplitSeq(parameters, ";") {
			if v, ok := strings.CutPrefix(strings.TrimSpace(p), "q="); ok {
				q, _ = strconv.ParseFloat(v, 64) // a bad one is 0
			}
		}
		is := Text
		switch strings.TrimSpace(kind) {
		case "application/openmetrics-text":
			is = OpenMetrics
		case "text/plain", "text/*", "*/*":
		default:
			continue
		}
		if q > best {
			best, format = q, is
		}
	}
	return format
}

// Writer writes snapshots of one agent. It keeps what is the same from one to
// the next: the order of the lines, and the labels of each, are made once for
// a set of schemas.
type Writer struct {
	schemas []*metric.Schema // of the lines
	lines   []line
	buf     []byte
}

// NewWriter returns a writer. It is not safe for concurrent use.
func NewWriter() *Writer { return &Writer{} }

// line is one series in the order of the output.
type line struct {
	series *metric.Series
	frame  int
	labels string // without braces
}

// Write returns the exposition of s, valid until the next call.
func (w *Writer) Write(s *metric.Snapshot, format Format) []byte {
	if !slices.EqualFunc(w.schemas, s.Frames, func(have *metric.Schema, f metric.Frame) bool { return have == f.Schema }) {
		w.arrange(s)
	}
	b := w.buf[:0]
	for i := range w.lines {
		l := &w.lines[i]
		if i == 0 || w.lines[i-1].series.Desc.Name != l.series.Desc.Name {
			b = header(b, l.series.Desc, format)
		}
		b = l.append(b, s.Frames[l.frame].Values[l.series.Off:], format)
	}
	if format == OpenMetrics {
		b = append(b, "# EOF\n"...)
	}
	w.buf = b
	return b
}

// arrange lists the series of all frames. A family must be in one piece,
// whichever sources it comes from.
func (w *Writer) arrange(s *metric.Snapshot) {
	w.schemas, w.lines = w.schemas[:0], w.lines[:0]
	for i := range s.Frames {
		schema := s.Frames[i].Schema
		w.schemas = append(w.schemas, schema)
		for j := range schema.Series {
			w.lines = append(w.lines, line{&schema.Series[j], i, labels(&schema.Series[j])})
		}
	}
	slices.SortStableFunc(w.lines, func(a, b line) int { return strings.Compare(a.series.Desc.Name, b.series.Desc.Name) })
}

func labels(s *metric.Series) string {
	var b strings.Builder
	for i, key := range s.Desc.Keys {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(key + `="` + labelEscapes.Replace(s.Values[i]) + `"`)
	}
	return b.String()
}

var (
	labelEscapes = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)
	helpEscapes  = strings.NewReplacer("\\", `\\`, "\n", `\n`)
	// OpenMetrics escapes quotes in help too.
	openHelpEscapes = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)
)

func header(b []byte, d *metric.Desc, format Format) []byte {
	help := helpEscapes
	if format == OpenMetrics {
		help = openHelpEscapes
	}
	text := d.Help
	if d.Unit != metric.None {
		text += ", in " + string(d.Unit)
	}
	b = append(b, "# HELP "...)
	b = append(b, d.Name...)
	b = append(b, ' ')
	b = append(b, help.Replace(text)...)
	b = append(b, "\n# TYPE "...)
	b = append(b, d.Name...)
	b = append(b, ' ')
	b = append(b, d.Kind.String()...)
	return append(b, '\n')
}

func (l *line) append(b []byte, words []uint64, format Format) []byte {
	d := l.series.Desc
	switch {
	case d.Kind == metric.Histogram:
		return l.histogram(b, words[:d.Words()])
	case d.Kind == metric.Counter:
		suffix := ""
		if format == OpenMetrics {
			suffix = "_total"
		}
		return append(strconv.AppendUint(l.name(b, suffix, ""), words[0], 10), '\n')
	case d.Float:
		return append(appendFloat(l.name(b, "", ""), math.Float64frombits(words[0])), '\n')
	}
	return append(strconv.AppendInt(l.name(b, "", ""), int64(words[0]), 10), '\n')
}

// name appends the sample's name, with its labels and one more, up to the
// blank before the value.
func (l *line) name(b []byte, suffix, more string) []byte {
	b = append(append(b, l.series.Desc.Name...), suffix...)
	if l.labels != "" || more != "" {
		b = append(append(b, '{'), l.labels...)
		if l.labels != "" && more != "" {
			b = append(b, ',')
		}
		b = append(append(b, more...), '}')
	}
	return append(b, ' ')
}

// The bounds of classic buckets: 2^k-1 is the largest value below an octave.
// For times, 255 ns to 68 s; for sizes, 63 B to 1 GiB; else 0 to 2^30.
func octaves(unit metric.Unit) (first, last int) {
	switch unit {
	case metric.Nanoseconds:
		return 8, 36
	case metric.Bytes:
		return 6, 30
	}
	return 1, 30
}

var bounds = func() (text [65]string) {
	for k := range text {
		le := float64(uint64(1)<<k - 1)
		if k == 64 {
			le = math.MaxUint64
		}
		text[k] = `le="` + string(appendFloat(nil, le)) + `"`
	}
	return text
}()

func (l *line) histogram(b []byte, buckets []uint64) []byte {
	d := l.series.Desc
	first, last := octaves(d.Unit)
	var count uint64
	i := 0
	for k := first; k <= last; k++ {
		for end := d.Power.Index(uint64(1)<<k - 1); i <= end; i++ {
			count += buckets[i]
		}
		b = append(strconv.AppendUint(l.name(b, "_bucket", bounds[k]), count, 10), '\n')
	}
	for ; i < len(buckets); i++ {
		count += buckets[i]
	}
	b = append(strconv.AppendUint(l.name(b, "_bucket", `le="+Inf"`), count, 10), '\n')
	lo, hi := d.Power.SumBounds(buckets)
	b = append(appendFloat(l.name(b, "_sum", ""), (lo+hi)/2), '\n')
	return append(strconv.AppendUint(l.name(b, "_count", ""), count, 10), '\n')
}

// appendFloat writes a float as both formats read it. OpenMetrics wants
// canonical numbers for le: 255.0 and not 255.
func appendFloat(b []byte, v float64) []byte {
	switch {
	case math.IsInf(v, 1):
		return append(b, "+Inf"...)
	case math.IsInf(v, -1):
		return append(b, "-Inf"...)
	case math.IsNaN(v):
		return append(b, "NaN"...)
	}
	n := len(b)
	b = strconv.AppendFloat(b, v, 'g', -1, 64)
	if !bytes.ContainsAny(b[n:], ".e") {
		b = append(b, ".0"...)
	}
	return b
}
