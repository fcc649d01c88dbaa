// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"slices"
	"strconv"
	"strings"

	"rezolus/internal/metric"
)

// column is one column of the file: a series, or one of the few others.
type column struct {
	rows
	name   string
	meta   map[string]string
	unit   string       // of a column that is no series
	series bool         //
	start  int64        // from when the series counts, as of the last row
	desc   *metric.Desc // nil for a column that is no series
	values []string     //
}

// identity is what makes two series of a source the same column: all that is
// said of the metric, and the labels.
func identity(b []byte, d *metric.Desc, values []string) []byte {
	for _, s := range [...]string{d.Name, string(d.Unit), d.Sampler} {
		b = appendPart(b, s)
	}
	b = append(b, byte(d.Kind), byte(d.Power), '-')
	if d.Float {
		b[len(b)-1] = 'f'
	}
	for i, k := range d.Keys {
		b = appendPart(appendPart(b, k), values[i])
	}
	if d.Kind.Native() {
		b = appendPart(b, slotsOf(d))
	}
	return b
}

func appendPart(b []byte, s string) []byte {
	return append(append(strconv.AppendInt(b, int64(len(s)), 10), ':'), s...)
}

func typeOf(d *metric.Desc) physical {
	switch {
	case d.Kind.Buckets():
		return histogram
	case d.Float:
		return float64s
	case d.Kind == metric.Gauge:
		return int64s
	}
	return uint64s
}

// metaOf is the metadata of a column of a series.
func metaOf(d *metric.Desc, values []string) map[string]string {
	m := map[string]string{keyMetric: d.Name, keyType: d.Kind.String()}
	if d.Unit != metric.None {
		m[keyUnit] = string(d.Unit)
	}
	if d.Sampler != "" {
		m[keySampler] = d.Sampler
	}
	if d.Kind == metric.Histogram {
		m[keyPower], m[keyMaxPower] = strconv.Itoa(int(d.Power)), maxValuePower
	}
	if d.Kind.Native() {
		m[keySlots] = slotsOf(d)
	}
	for i, k := range d.Keys {
		if reserved[k] || k == keyLife || strings.HasPrefix(k, labelPrefix) {
			k = labelPrefix + k
		}
		m[k] = values[i]
	}
	return m
}

// namer gives columns their names, each once.
type namer struct {
	form  Form
	ids   map[*metric.Desc]int // of the wide form: the number of each metric
	next  []int                // and how many members it has
	taken map[string]bool
}

func newNamer(form Form) *namer {
	return &namer{form: form, ids: map[*metric.Desc]int{}, taken: map[string]bool{}}
}

func (n *namer) name(d *metric.Desc, values []string) string {
	if n.form == Wide {
		return n.wide(d)
	}
	base := Name(d, values)
	name := base
	for i := 2; n.taken[name]; i++ {
		name = base + "#" + strconv.Itoa(i)
	}
	n.taken[name] = true
	return name
}

// wide is the name of the next series of a metric: the number of the metric,
// and of the series within it if the metric has labels.
func (n *namer) wide(d *metric.Desc) string {
	id, ok := n.ids[d]
	if !ok {
		id = len(n.next)
		n.ids[d] = id
		n.next = append(n.next, 0)
	}
	name := strconv.Itoa(id)
	if len(d.Keys) > 0 || n.next[id] > 0 {
		name += "x" + strconv.Itoa(n.next[id])
	}
	n.next[id]++
	if d.Kind.Buckets() {
		name += bucketsSuffix
	}
	return name
}

// Name is a series in the notation of Prometheus: cpu_usage{id="0"}. Labels
// without a value are left out.
func Name(d *metric.Desc, values []string) string {
	var b strings.Builder
	b.WriteString(d.Name)
	sep := byte('{')
	for i, k := range d.Keys {
		if values[i] == "" {
			continue
		}
		b.WriteByte(sep)
		b.WriteString(k)
		b.WriteByte('=')
		b.WriteString(strconv.Quote(values[i]))
		sep = ','
	}
	if sep == ',' {
		b.WriteByte('}')
	}
	return b.String()
}

// table is the columns of one source, and those of its schema as of the last
// frame.
type table struct {
	name    string
	byID    map[string][]int        // more than one: lives at once
	descs   map[string]*metric.Desc // one description for what is the same
	schema  *metric.Schema
	columns []int // of the schema's series
	spans   spans
	lost    uint64
	seen    bool // whether there is an entry of lost events
	window  int  // the first of the two columns of the window, if there are
}

// desc is the description that stands for all that are the same.
func (t *table) desc(d *metric.Desc) *metric.Desc {
	id := string(identity(nil, d, slices.Repeat([]string{""}, len(d.Keys))))
	if known := t.descs[id]; known != nil {
		return known
	}
	t.descs[id] = d
	return d
}
