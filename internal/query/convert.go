// SPDX-License-Identifier: Apache-2.0

package query

import (
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// fromValue is the engine's answer in our words.
func fromValue(v parser.Value) *Result {
	out := &Result{Type: Type(v.Type())}
	switch v := v.(type) {
	case promql.String:
		out.Text, out.Time = v.V, v.T
	case promql.Scalar:
		out.Series = []Series{{Points: []Point{{v.T, v.V}}}}
	case promql.Vector:
		m := make(promql.Matrix, len(v))
		floats := make([]promql.FPoint, len(v))
		for i, s := range v {
			m[i].Metric = s.Metric
			if s.H != nil {
				m[i].Histograms = []promql.HPoint{{T: s.T, H: s.H}}
				continue
			}
			floats[i] = promql.FPoint{T: s.T, F: s.F}
			m[i].Floats = floats[i : i+1]
		}
		out.Series = fromMatrix(m)
	case promql.Matrix:
		out.Series = fromMatrix(v)
	}
	return out
}

// fromMatrix takes its memory in three pieces however many series there are.
func fromMatrix(m promql.Matrix) []Series {
	nLabels, nPoints := 0, 0
	for i := range m {
		nLabels += m[i].Metric.Len()
		nPoints += len(m[i].Floats)
	}
	out := make([]Series, len(m))
	names, points := make([]Label, 0, nLabels), make([]Point, 0, nPoints)
	for i := range m {
		n, p := len(names), len(points)
		names = appendLabelsOf(names, m[i].Metric)
		for _, f := range m[i].Floats {
			points = append(points, Point{f.T, f.F})
		}
		out[i] = Series{Labels: names[n:len(names):len(names)], Points: points[p:len(points):len(points)]}
		for _, h := range m[i].Histograms {
			out[i].Histograms = append(out[i].Histograms, HistogramPoint{h.T, fromHistogram(h.H)})
		}
	}
	return out
}

func appendLabelsOf(list []Label, ls labels.Labels) []Label {
	ls.Range(func(l labels.Label) { list = append(list, Label{l.Name, l.Value}) })
	return list
}

func fromHistogram(h *histogram.FloatHistogram) Histogram {
	out := Histogram{Count: h.Count, Sum: h.Sum}
	for it := h.AllBucketIterator(); it.Next(); {
		b := it.At()
		if b.Count == 0 {
			continue
		}
		bounds := 2
		switch {
		case b.LowerInclusive && b.UpperInclusive:
			bounds = 3
		case b.LowerInclusive:
			bounds = 1
		case b.UpperInclusive:
			bounds = 0
		}
		out.Buckets = append(out.Buckets, Bucket{b.Lower, b.Upper, b.Count, bounds})
	}
	return out
}
