// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// The numbers are those of metrics.proto of github.com/prometheus/client_model.
const (
	protobufType    = "application/vnd.google.protobuf"
	protobufMessage = "io.prometheus.client.MetricFamily"

	familyName, familyHelp, familyType, familyMetric, familyUnit = 1, 2, 3, 4, 5
	metricLabel                                                  = 1
)

// wire is the memory of messages within each other.
type wire struct{ family, metric, value, part []byte }

// typeOf is a family's type, and the field of a metric that has its value.
func typeOf(k metric.Kind) (typ uint64, field protowire.Number) {
	switch k {
	case metric.Counter:
		return 0, 3
	case metric.Gauge:
		return 1, 2
	case metric.NativeGauge:
		return 5, 7
	}
	return 4, 7
}

// appendProtobuf appends a message of each family behind its length. Units have
// a field, and so have starts, which the text formats do not say.
func (w *Writer) appendProtobuf(dst []byte, s *metric.Snapshot) []byte {
	m := &w.wire
	for i := range w.lines {
		l := &w.lines[i]
		d := l.series.Desc
		typ, field := typeOf(d.Kind)
		if l.first {
			m.family = appendText(appendText(m.family[:0], familyName, d.Name), familyHelp, d.Help)
			m.family = appendNumber(m.family, familyType, typ)
			if d.Unit != metric.None {
				m.family = appendText(m.family, familyUnit, string(d.Unit))
			}
		}
		m.metric = m.metric[:0]
		for k, key := range d.Keys {
			if v := l.series.Values[k]; v != "" {
				m.part = appendText(appendText(m.part[:0], 1, key), 2, strings.ToValidUTF8(v, "\ufffd"))
				m.metric = appendBytes(m.metric, metricLabel, m.part)
			}
		}
		m.values(l.series, s.Frames[l.frame].Values[l.series.Off:][:d.Words()])
		m.metric = appendBytes(m.metric, field, m.value)
		m.family = appendBytes(m.family, familyMetric, m.metric)
		if i+1 == len(w.lines) || w.lines[i+1].first {
			dst = protowire.AppendBytes(dst, m.family)
		}
	}
	return dst
}

// values makes the message with a series' value.
func (m *wire) values(e *metric.Series, words []uint64) {
	m.value = m.value[:0]
	created := protowire.Number(15)
	switch d := e.Desc; {
	case d.Kind == metric.Histogram:
		m.classic(d, words)
	case d.Kind.Native():
		m.native(d, words)
	default:
		m.value = appendDouble(m.value, 1, d.Value(words[0]))
		created = 3
	}
	if e.Start > 0 && e.Desc.Kind != metric.Gauge && e.Desc.Kind != metric.NativeGauge {
		m.part = appendNumber(appendNumber(m.part[:0], 1, uint64(e.Start/1e9)), 2, uint64(e.Start%1e9))
		m.value = appendBytes(m.value, created, m.part)
	}
}

// classic has the buckets that the text formats have.
func (m *wire) classic(d *metric.Desc, buckets []uint64) {
	lo, hi := d.Power.SumBounds(buckets)
	m.value = appendDouble(appendNumber(m.value, 1, hist.Count(buckets)), 2, (lo+hi)/2)
	first, last := octaves(d.Unit)
	count, i := uint64(0), 0
	for k := first; k <= last; k++ {
		for end := d.Power.Index(uint64(1)<<k - 1); i <= end; i++ {
			count += buckets[i]
		}
		m.part = appendDouble(appendNumber(m.part[:0], 1, count), 2, float64(uint64(1)<<k-1))
		m.value = appendBytes(m.value, 3, m.part)
	}
}

// native has all buckets that count.
func (m *wire) native(d *metric.Desc, words []uint64) {
	at, _ := slices.BinarySearch(d.Slots, hist.SlotCount)
	zero, _ := slices.BinarySearch(d.Slots, hist.SlotZero)
	count, sum, schema, threshold := words[at], words[at+1], words[at+2], words[at+3] // in this order
	if d.Float {
		m.value = appendDouble(appendDouble(m.value, 4, math.Float64frombits(count)), 8, math.Float64frombits(words[zero]))
	} else {
		m.value = appendNumber(appendNumber(m.value, 1, count), 7, words[zero])
	}
	m.value = appendDouble(m.value, 2, math.Float64frombits(sum))
	m.value = appendNumber(m.value, 5, protowire.EncodeZigZag(int64(schema)))
	m.value = appendDouble(m.value, 6, math.Float64frombits(threshold))
	spans := m.side(d, words, zero-1, -1, -1, 9)
	spans += m.side(d, words, zero+1, 1, at, 12)
	if spans == 0 { // a span of nothing tells that it is a native one
		m.span(12, 0, 0)
	}
}

// side has the buckets of one side, whose words are from one place on to
// another: their spans, in the field, and their counts in one of the two that
// follow. It gives the number of spans.
func (m *wire) side(d *metric.Desc, words []uint64, from, step, to int, field protowire.Number) (spans int) {
	next, length, offset, before := int32(0), uint64(0), int32(0), uint64(0)
	for i := from; i != to; i += step {
		if words[i] == 0 {
			continue
		}
		index, _, _ := d.Slots[i].Bucket()
		if index != next || length == 0 {
			if length > 0 {
				m.span(field, offset, length)
			}
			spans, offset, length = spans+1, index-next, 0
		}
		next, length = index+1, length+1
		if d.Float {
			m.value = appendDouble(m.value, field+2, math.Float64frombits(words[i]))
		} else {
			m.value = appendNumber(m.value, field+1, protowire.EncodeZigZag(int64(words[i]-before)))
			before = words[i]
		}
	}
	if length > 0 {
		m.span(field, offset, length)
	}
	return spans
}

func (m *wire) span(field protowire.Number, offset int32, length uint64) {
	m.part = appendNumber(appendNumber(m.part[:0], 1, protowire.EncodeZigZag(int64(offset))), 2, length)
	m.value = appendBytes(m.value, field, m.part)
}

func appendText(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func appendBytes(b []byte, field protowire.Number, s []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func appendNumber(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendDouble(b []byte, field protowire.Number, v float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), math.Float64bits(v))
}
