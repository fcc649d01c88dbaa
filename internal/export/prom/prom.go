// SPDX-License-Identifier: Apache-2.0

// Package prom writes a snapshot in the formats that Prometheus scrapes: its own
// text, version 0.0.4, OpenMetrics 1.0, and protocol buffers.
//
// A metric has one name, here as in queries and in the original's exporter.
// OpenMetrics alone demands that a counter's samples end in _total. So that
// dashboards do not depend on the format a scraper asks for, OpenMetrics goes
// only to those who take nothing else (Negotiate). Values are in the metrics'
// own units, which the help names. There are no timestamps: a sample is of
// when it is scraped.
//
// A histogram becomes a classic one with a bucket for each power of two within
// a range, whose bounds are exact; its sum is an estimate from the middles of
// its own, finer buckets.
//
// A native histogram is whole as a protocol buffer, for those who like these
// best. Else it is cut down to what text can say of one: its count and its
// sum, and the bucket of everything. Its buckets come and go, and rates of
// classic buckets that do are wrong. The text format says nothing of one that is
// a gauge, for it has no such type.
package prom

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"

	"rezolus/internal/metric"
)

// Format is one of the three.
type Format int

// The formats.
const (
	Text Format = iota
	OpenMetrics
	Protobuf
)

// ContentType is the value of the header of that name.
func (f Format) ContentType() string {
	switch f {
	case OpenMetrics:
		return "application/openmetrics-text; version=1.0.0; charset=utf-8"
	case Protobuf:
		return protobufType + "; proto=" + protobufMessage + "; encoding=delimited"
	}
	return "text/plain; version=0.0.4; charset=utf-8"
}

// Writer writes snapshots of one agent. It keeps what is the same from one to
// the next: the order of the lines for a set of schemas, and the labels of
// each schema that is still there.
type Writer struct {
	schemas []*metric.Schema // of the lines
	format  Format           // and what they are for
	wire    wire
	lines   []line
	labels  map[*metric.Schema][]string // of each series, without braces
}

// NewWriter returns a writer. It is not safe for concurrent use.
func NewWriter() *Writer { return &Writer{} }

// line is one series in the order of the output.
type line struct {
	series *metric.Series
	frame  int
	labels string
	first  bool // of its family
}

// Append appends the exposition of s. It allocates for series it has not
// written before, and for what dst lacks.
func (w *Writer) Append(dst []byte, s *metric.Snapshot, format Format) []byte {
	if w.format != format || !slices.EqualFunc(w.schemas, s.Frames, func(have *metric.Schema, f metric.Frame) bool { return have == f.Schema }) {
		w.arrange(s, format)
	}
	if format == Protobuf {
		return w.appendProtobuf(dst, s)
	}
	for i := range w.lines {
		l := &w.lines[i]
		if l.first {
			dst = header(dst, l.series.Desc, format)
		}
		dst = l.append(dst, s.Frames[l.frame].Values[l.series.Off:], format)
	}
	if format == OpenMetrics {
		dst = append(dst, "# EOF\n"...)
	}
	return dst
}

// arrange lists the series of all frames. A family must be in one piece and of
// one kind, and a series in it once, whichever sources they come from: else a
// scraper refuses everything. Where two disagree the first source wins.
func (w *Writer) arrange(s *metric.Snapshot, format Format) {
	w.format = format
	known := w.labels
	w.labels = make(map[*metric.Schema][]string, len(s.Frames))
	w.schemas, w.lines = w.schemas[:0], w.lines[:0]
	kinds := map[string]metric.Kind{}
	for i := range s.Frames {
		schema := s.Frames[i].Schema
		w.schemas = append(w.schemas, schema)
		labels := known[schema]
		if labels == nil {
			labels = labelsOf(schema)
		}
		w.labels[schema] = labels
		for j := range schema.Series {
			d := schema.Series[j].Desc
			if _, ok := kinds[d.Name]; !ok {
				kinds[d.Name] = d.Kind
			}
			if kinds[d.Name] == d.Kind && (d.Kind != metric.NativeGauge || format != Text) {
				w.lines = append(w.lines, line{series: &schema.Series[j], frame: i, labels: labels[j]})
			}
		}
	}
	// A classic histogram beside the native one has said it all.
	w.lines = slices.DeleteFunc(w.lines, func(l line) bool {
		return format != Protobuf && l.series.Desc.Kind.Native() && kinds[l.series.Desc.Name+"_bucket"] != 0
	})
	slices.SortStableFunc(w.lines, func(a, b line) int { return strings.Compare(a.series.Desc.Name, b.series.Desc.Name) })
	w.separate()
}

// separate marks where families begin, and removes series that another source
// has too. Of two lives that one source has at once, such as a cgroup that is
// read once more and the next one of its name, the one that began last stays.
func (w *Writer) separate() {
	n, name := 0, ""
	seen := map[string]int{} // the lines of the family, by their labels
	for _, l := range w.lines {
		if l.first = l.series.Desc.Name != name; l.first {
			name = l.series.Desc.Name
			clear(seen)
		}
		if at, ok := seen[l.labels]; ok {
			if have := &w.lines[at]; l.frame == have.frame && l.series.Start > have.series.Start {
				have.series = l.series
			}
			continue
		}
		seen[l.labels] = n
		w.lines[n] = l
		n++
	}
	clear(w.lines[n:])
	w.lines = w.lines[:n]
}

func labelsOf(schema *metric.Schema) []string {
	all := make([]string, len(schema.Series))
	var b strings.Builder
	for i := range schema.Series {
		s := &schema.Series[i]
		b.Reset()
		for k, key := range s.Desc.Keys {
			if k > 0 {
				b.WriteByte(',')
			}
			b.WriteString(key)
			b.WriteString(`="`)
			b.WriteString(quoted.Replace(s.Values[k]))
			b.WriteByte('"')
		}
		all[i] = b.String()
	}
	return all
}

var (
	quoted = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)
	plain  = strings.NewReplacer("\\", `\\`, "\n", `\n`)
)

// header is the lines before a family's samples.
func header(b []byte, d *metric.Desc, format Format) []byte {
	name, escapes := d.Name, plain
	if format == OpenMetrics {
		escapes = quoted // OpenMetrics escapes quotes in help too
		if d.Kind == metric.Counter {
			name = strings.TrimSuffix(name, total) // it is the samples', not the family's
		}
	}
	help := d.Help
	if d.Unit != metric.None {
		help += ", in " + string(d.Unit)
	}
	b = append(append(append(b, "# HELP "...), name...), ' ')
	b = append(b, escapes.Replace(help)...)
	b = append(append(append(b, "\n# TYPE "...), name...), ' ')
	b = append(b, d.Kind.String()...)
	return append(b, '\n')
}

// total is what a counter's samples must end in, in OpenMetrics.
const total = "_total"

func (l *line) append(b []byte, words []uint64, format Format) []byte {
	d := l.series.Desc
	switch {
	case d.Kind == metric.Histogram:
		return l.histogram(b, words[:d.Words()])
	case d.Kind.Native():
		return l.native(b, words)
	case d.Kind == metric.Counter:
		suffix := ""
		if format == OpenMetrics && !strings.HasSuffix(d.Name, total) {
			suffix = total
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
