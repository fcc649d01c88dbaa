// SPDX-License-Identifier: Apache-2.0

package query

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// AppendJSON appends the result as the data of Prometheus's HTTP API: an
// object with resultType and result.
func (r *Result) AppendJSON(b []byte) []byte {
	b = append(b, `{"resultType":`...)
	b = appendString(b, string(r.Type))
	b = append(b, `,"result":`...)
	switch r.Type {
	case String:
		b = append(b, '[')
		b = appendString(append(appendTime(b, r.Time), ','), r.Text)
		b = append(b, ']')
	case Scalar:
		p := r.Series[0].Points[0]
		b = append(appendTime(append(b, '['), p.T), `,"`...)
		b = append(strconv.AppendFloat(b, p.V, 'f', -1, 64), `"]`...)
	default:
		b = append(b, '[')
		for i := range r.Series {
			if i > 0 {
				b = append(b, ',')
			}
			b = r.Series[i].appendJSON(b, r.Type == Vector)
		}
		b = append(b, ']')
	}
	if r.stats != nil {
		b = append(append(b, `,"stats":`...), r.stats...)
	}
	return append(b, '}')
}

// appendJSON writes a series; of a vector it has a value instead of values.
func (s *Series) appendJSON(b []byte, single bool) []byte {
	b = appendLabels(append(b, `{"metric":`...), s.Labels)
	list := func(name string, n int, item func([]byte, int) []byte) {
		if n == 0 {
			return
		}
		b = append(append(b, `,"`...), name...)
		if single {
			b = item(append(b, `":`...), 0)
			return
		}
		b = append(b, `s":[`...)
		for i := range n {
			if i > 0 {
				b = append(b, ',')
			}
			b = item(b, i)
		}
		b = append(b, ']')
	}
	list("value", len(s.Points), func(b []byte, i int) []byte {
		b = append(appendTime(append(b, '['), s.Points[i].T), ',')
		return append(appendFloat(b, s.Points[i].V), ']')
	})
	list("histogram", len(s.Histograms), func(b []byte, i int) []byte {
		b = append(appendTime(append(b, '['), s.Histograms[i].T), ',')
		return append(s.Histograms[i].H.appendJSON(b), ']')
	})
	return append(b, '}')
}

func (h *Histogram) appendJSON(b []byte) []byte {
	b = appendFloat(append(b, `{"count":`...), h.Count)
	b = appendFloat(append(b, `,"sum":`...), h.Sum)
	for i, k := range h.Buckets {
		if i == 0 {
			b = append(b, `,"buckets":[[`...)
		} else {
			b = append(b, `,[`...)
		}
		b = append(strconv.AppendInt(b, int64(k.Bounds), 10), ',')
		b = append(appendFloat(b, k.Lower), ',')
		b = append(appendFloat(b, k.Upper), ',')
		b = append(appendFloat(b, k.Count), ']')
	}
	if len(h.Buckets) > 0 {
		b = append(b, ']')
	}
	return append(b, '}')
}

func appendLabels(b []byte, ls []Label) []byte {
	b = append(b, '{')
	for i, l := range ls {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, l.Name), ':')
		b = appendString(b, l.Value)
	}
	return append(b, '}')
}

func appendStrings(b []byte, list []string) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, s)
	}
	return append(b, ']')
}

// appendTime writes milliseconds as seconds, without trailing zeros only
// where all three are: Prometheus writes 1.5 s as 1.500.
func appendTime(b []byte, ms int64) []byte {
	if ms < 0 {
		b, ms = append(b, '-'), -ms
	}
	b = strconv.AppendInt(b, ms/1000, 10)
	if f := ms % 1000; f != 0 {
		b = append(b, '.', byte('0'+f/100), byte('0'+f/10%10), byte('0'+f%10))
	}
	return b
}

// appendFloat writes a float as a string, in the notation that Prometheus
// writes it in: NaN and the infinities are no JSON numbers.
func appendFloat(b []byte, f float64) []byte {
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	return append(strconv.AppendFloat(append(b, '"'), f, format, -1, 64), '"')
}

// appendString writes a JSON string. Bytes that are not UTF-8, which a path
// of a control group may have, become U+FFFD.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += n
			continue
		}
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\t':
			b = append(b, '\\', 't')
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
		i++
	}
	return append(b, '"')
}
