// SPDX-License-Identifier: Apache-2.0

package text

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// header writes the names of the columns.
func (w *Writer) header() {
	w.buf = append(w.buf, "time,time_ns,metric,labels,kind,unit,value,count"...)
	if len(w.o.Quantiles) == 0 {
		w.buf = append(w.buf, ",buckets\r\n"...)
		return
	}
	for _, q := range w.o.Quantiles {
		w.buf = append(w.buf, ",q"...)
		w.buf = strconv.AppendFloat(w.buf, q, 'g', -1, 64)
	}
	w.buf = append(w.buf, "\r\n"...)
}

func csvMiddle(e *metric.Series) []byte {
	var labels strings.Builder
	for i, k := range e.Desc.Keys {
		if i > 0 {
			labels.WriteByte(',')
		}
		labels.WriteString(k + "=" + strconv.Quote(e.Values[i]))
	}
	b := []byte{','}
	for _, s := range []string{e.Desc.Name, labels.String(), e.Desc.Kind.String(), string(e.Desc.Unit)} {
		b = append(appendField(b, s), ',')
	}
	return b
}

// appendField quotes a field where RFC 4180 demands it.
func appendField(b []byte, s string) []byte {
	if !strings.ContainsAny(s, ",\"\r\n") {
		return append(b, s...)
	}
	b = append(b, '"')
	b = append(b, strings.ReplaceAll(s, `"`, `""`)...)
	return append(b, '"')
}

// csv writes the columns from value on. Those that a series does not have
// are empty.
func (w *Writer) csv(r *row, words []uint64) {
	d := r.series.Desc
	rest := max(1, len(w.o.Quantiles))
	switch {
	case d.Kind.Native():
		rest = w.nativeCSV(r, words)
	case d.Kind != metric.Histogram:
		w.buf = append(appendWord(w.buf, d, words[0]), ',')
	case len(w.o.Quantiles) == 0:
		w.buf = append(w.buf, ',')
		w.buf = append(strconv.AppendUint(w.buf, hist.Count(words), 10), ',')
		w.buf, rest = appendBuckets(w.buf, d.Power, words), 0
	default:
		w.buf = append(w.buf, ',')
		counted, ok := r.since(words)
		if !ok {
			break
		}
		w.buf, rest = strconv.AppendUint(w.buf, hist.Count(counted), 10), 0
		for _, q := range w.o.Quantiles {
			w.buf = append(w.buf, ',')
			if _, hi, ok := d.Power.Quantile(counted, q); ok {
				w.buf = strconv.AppendUint(w.buf, hi, 10)
			}
		}
	}
	for range rest {
		w.buf = append(w.buf, ',')
	}
	w.buf = append(w.buf, "\r\n"...)
}

// appendBuckets writes buckets that are not empty: lowest..highest:count,
// separated by spaces.
func appendBuckets(b []byte, p hist.Power, words []uint64) []byte {
	first := true
	for i, n := range words {
		if n == 0 {
			continue
		}
		if !first {
			b = append(b, ' ')
		}
		first = false
		lo, hi := p.Bounds(i)
		b = append(strconv.AppendUint(b, lo, 10), ".."...)
		b = append(strconv.AppendUint(b, hi, 10), ':')
		b = strconv.AppendUint(b, n, 10)
	}
	return b
}

func jsonMiddle(e *metric.Series) []byte {
	labels := make(map[string]string, len(e.Desc.Keys))
	for i, k := range e.Desc.Keys {
		labels[k] = e.Values[i]
	}
	b := append([]byte(`,"metric":`), quote(e.Desc.Name)...)
	b = append(append(b, `,"labels":`...), quote(labels)...)
	b = append(append(b, `,"kind":`...), quote(e.Desc.Kind.String())...)
	return append(append(b, `,"unit":`...), quote(e.Desc.Unit)...)
}

// quote is a string or a map of them in JSON, which cannot fail.
func quote(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// json writes the members from value on, and ends the line.
func (w *Writer) json(r *row, words []uint64) {
	d := r.series.Desc
	switch {
	case d.Kind.Native():
		w.nativeJSON(r, words)
	case d.Kind != metric.Histogram:
		w.buf = append(w.buf, `,"value":`...)
		w.buf = appendNumber(w.buf, d, words[0])
	case len(w.o.Quantiles) == 0:
		w.buf = append(w.buf, `,"count":`...)
		w.buf = strconv.AppendUint(w.buf, hist.Count(words), 10)
		w.buf = appendTriples(append(w.buf, `,"buckets":`...), d.Power, words)
	default:
		if counted, ok := r.since(words); ok {
			w.quantiles(d.Power, counted)
		}
	}
	w.buf = append(w.buf, "}\n"...)
}

// appendNumber writes a word. JSON has no NaN and no infinity: those are
// strings.
func appendNumber(b []byte, d *metric.Desc, word uint64) []byte {
	if v := d.Value(word); d.Float && (math.IsNaN(v) || math.IsInf(v, 0)) {
		return appendJSONFloat(b, v)
	}
	return appendWord(b, d, word)
}

// appendTriples writes buckets that are not empty as lowest, highest, count.
func appendTriples(b []byte, p hist.Power, words []uint64) []byte {
	b = append(b, '[')
	first := len(b)
	for i, n := range words {
		if n == 0 {
			continue
		}
		if len(b) > first {
			b = append(b, ',')
		}
		lo, hi := p.Bounds(i)
		b = append(strconv.AppendUint(append(b, '['), lo, 10), ',')
		b = append(strconv.AppendUint(b, hi, 10), ',')
		b = append(strconv.AppendUint(b, n, 10), ']')
	}
	return append(b, ']')
}

func (w *Writer) quantiles(p hist.Power, counted []uint64) {
	w.buf = append(w.buf, `,"count":`...)
	w.buf = strconv.AppendUint(w.buf, hist.Count(counted), 10)
	w.buf = append(w.buf, `,"quantiles":{`...)
	first := len(w.buf)
	for _, q := range w.o.Quantiles {
		_, hi, ok := p.Quantile(counted, q)
		if !ok {
			break
		}
		if len(w.buf) > first {
			w.buf = append(w.buf, ',')
		}
		w.buf = append(w.buf, '"')
		w.buf = append(strconv.AppendFloat(w.buf, q, 'g', -1, 64), `":`...)
		w.buf = strconv.AppendUint(w.buf, hi, 10)
	}
	w.buf = append(w.buf, '}')
}
