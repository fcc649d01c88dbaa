// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// shapeKind is what the values of a column are.
type shapeKind uint8

const (
	unsigned shapeKind = iota + 1
	signed
	floats
	listOf
)

// shape is a column's values, or nil if they are of no kind that is read.
func shape(c *node) (*input, shapeKind) {
	leaf, list := c, false
	for len(leaf.kids) > 0 {
		list = true
		if len(leaf.kids) > 1 {
			return nil, 0
		}
		leaf = leaf.kids[0]
	}
	in := &input{name: c.name, leaf: leaf, scale: 1}
	kind := signed
	switch {
	case leaf.typ == typeInt64 && leaf.unsigned:
		kind = unsigned
	case leaf.typ == typeDouble:
		kind = floats
	case leaf.typ != typeInt64:
		return nil, 0
	}
	switch {
	case list && leaf.rep == 1 && kind != floats:
		return in, listOf
	case list || leaf.rep != 0:
		return nil, 0
	}
	return in, kind
}

// describe is what a column's metadata says of the metric, and the values of
// the labels, or why it is not read.
func (im *importer) describe(c *node, kind shapeKind, meta map[string]string, in *input) (d *metric.Desc, values []string, why string) {
	d = &metric.Desc{Unit: metric.Unit(meta[keyUnit]), Sampler: meta[keySampler]}
	given := meta[keyMetric]
	if given == "" {
		given = strings.TrimSuffix(c.name, bucketsSuffix)
	}
	d.Name, d.Help = metricName(given), im.help[given]
	switch typ := meta[keyType]; {
	case kind == listOf && meta[keySlots] != "":
		if d.Kind = metric.Native; typ != d.Kind.String() {
			d.Kind = metric.NativeGauge
		}
		if !parseSlots(d, meta[keySlots]) {
			return nil, nil, "a native histogram of slots that are none"
		}
		in.width = len(d.Slots)
	case kind == listOf && (typ == "histogram" || typ == ""):
		d.Kind = metric.Histogram
		if why := histogramOf(d, meta, in); why != "" {
			return nil, nil, why
		}
	case kind == listOf:
		return nil, nil, "a list that is no histogram: " + typ
	case kind == floats && typ == "gauge":
		d.Kind, d.Float = metric.Gauge, true
	case kind == floats:
		return nil, nil, "only gauges are read as floating-point numbers"
	case typ == "counter" || typ == "" && kind == unsigned:
		d.Kind = metric.Counter
	case typ == "gauge" || typ == "" && kind == signed:
		d.Kind = metric.Gauge
	default:
		return nil, nil, "of a kind that is not known: " + typ
	}
	renamed := d.Name != given
	labels := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(meta)) {
		if reserved[k] || k == keyLife && im.own != nil {
			continue
		}
		key := labelName(strings.TrimPrefix(k, labelPrefix))
		renamed = renamed || key != strings.TrimPrefix(k, labelPrefix)
		labels[key] = meta[k]
	}
	if renamed {
		im.f.report.Renamed++
	}
	d.Keys = slices.Sorted(maps.Keys(labels))
	for _, k := range d.Keys {
		values = append(values, labels[k])
	}
	return d, values, ""
}

// histogramOf takes the layout of a histogram's buckets. One that ends below
// the largest uint64 has the first buckets of one that does not.
func histogramOf(d *metric.Desc, meta map[string]string, in *input) (why string) {
	power, err := strconv.ParseUint(meta[keyPower], 10, 8)
	if err != nil {
		return "a histogram without a grouping power"
	}
	d.Power = hist.Power(power)
	if !d.Power.Valid() {
		return "a histogram of grouping power " + meta[keyPower] + "; 2 to 7 are read"
	}
	top, err := strconv.ParseUint(meta[keyMaxPower], 10, 8)
	if err != nil || top > 64 || top <= power {
		return "a histogram without a valid largest power"
	}
	in.width = int(top-power+1) << power
	return ""
}

// metricName is a name as metrics have them: what is not a lower-case
// letter, a digit or _ is made one.
func metricName(s string) string {
	b := []byte(strings.ToLower(s))
	for i, c := range b {
		if !isWord(c) {
			b[i] = '_'
		}
	}
	if len(b) == 0 || b[0] < 'a' || b[0] > 'z' {
		return "m_" + string(b)
	}
	return string(b)
}

// labelName is a name as label keys have them.
func labelName(s string) string {
	b := []byte(s)
	for i, c := range b {
		if !isWord(c|0x20) && !isWord(c) {
			b[i] = '_'
		}
	}
	if len(b) == 0 || b[0] >= '0' && b[0] <= '9' {
		return "_" + string(b)
	}
	return string(b)
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_'
}
