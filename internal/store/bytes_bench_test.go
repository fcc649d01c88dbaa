// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"testing"
)

// BenchmarkBytes says what a tick in columns takes, and what it is made of:
// columns by kind and before compression, the rest as it is in the file.
func BenchmarkBytes(b *testing.B) {
	rows := benchRows(b)
	var in map[string]int
	ticks, total := 0, 0
	for b.Loop() {
		sealed := sealed(b, rows, sealBytes)
		in, ticks, total = map[string]int{}, 0, len(sealed)
		for r := NewRecords(bytes.NewReader(sealed)); ; {
			rec, err := r.Next()
			if err != nil {
				break
			}
			switch rec.Type {
			case TypeDict:
				in["dictionaries"] += len(rec.Raw)
			case TypeSegment:
				in["directories"] += len(rec.Raw)
			case TypeBlock:
				f, err := parseBlock(rec)
				if err != nil {
					b.Fatal(err)
				}
				if f.index < blockColumns {
					in[[]string{"times", "windows"}[f.index]] += len(rec.Raw)
				} else {
					in["columns-packed"] += len(rec.Raw)
				}
			}
		}
		r := open(b, sealed)
		for _, l := range r.all() {
			n, err := columnBytes(r, &l, in)
			if err != nil {
				b.Fatal(err)
			}
			ticks += n
		}
	}
	b.ReportMetric(float64(total)/float64(ticks), "B/tick")
	for what, n := range in {
		b.ReportMetric(float64(n)/float64(ticks), what+"-B/tick")
	}
}

// columnBytes adds the columns of a segment, and says how many ticks it has.
func columnBytes(r *Recording, l *located, in map[string]int) (ticks int, err error) {
	sr, err := newSegmentReader(r.segment(l))
	if err != nil {
		return 0, err
	}
	defer sr.close()
	for i := range sr.d.sources {
		s := &sr.d.sources[i]
		d, err := sr.dictionary(s)
		if err != nil {
			return 0, err
		}
		for j := range d.Series {
			c, err := sr.column(s.column + j)
			if err != nil {
				return 0, err
			}
			kind := d.Series[j].Desc.Kind
			what := kind.String()
			if !kind.Buckets() && c[0]&7 == formConst {
				what = "still"
			}
			in[what] += len(c) + 1
		}
	}
	return sr.d.ticks, nil
}
