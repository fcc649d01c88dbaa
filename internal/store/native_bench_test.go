// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// BenchmarkNative records 50 native histograms that observe 100 values a tick
// each: the bytes of a tick in rows and in columns, and how often their slots
// became others.
func BenchmarkNative(b *testing.B) {
	const series, ticks = 50, 600
	for b.Loop() {
		r := rand.New(rand.NewPCG(7, 7))
		w, e := newWorld(1), NewEncoder(EncoderOptions{})
		counts, sums, layouts := make([]map[hist.Slot]uint64, series), make([]float64, series), 0
		var slots []hist.Slot
		var schema *metric.Schema
		var rows []byte
		for range ticks {
			w.wall, w.mono, w.seq = w.wall+second, w.mono+second, w.seq+1
			grown := slots
			for i := range counts {
				if counts[i] == nil {
					counts[i] = map[hist.Slot]uint64{hist.SlotSchema: 3, hist.SlotThreshold: math.Float64bits(1e-128)}
				}
				for range r.IntN(200) {
					v := math.Exp(r.NormFloat64()*1.2 - 6 + float64(i%5))
					slot := hist.BucketSlot(int32(math.Ceil(math.Log2(v)*8)), false)
					counts[i][slot]++
					counts[i][hist.SlotCount]++
					sums[i] += v
					grown = hist.Cover(grown, []hist.Slot{slot})
				}
			}
			if len(grown) != len(slots) {
				slots, layouts = grown, layouts+1
				d := &metric.Desc{Name: "rpc_seconds", Kind: metric.Native, Slots: slots, Keys: []string{"op"}}
				all := make([]metric.Series, series)
				for i := range all {
					all[i] = metric.Series{Desc: d, Values: []string{fmt.Sprint("operation", i)}}
				}
				var err error
				if schema, err = metric.NewSchema("scrape/x", all); err != nil {
					b.Fatal(err)
				}
			}
			f := metric.Frame{Schema: schema, Begin: w.mono, End: w.mono + 5, Values: make([]uint64, schema.Words)}
			sum, _ := slices.BinarySearch(slots, hist.SlotSum)
			for i := range counts {
				words := f.Values[i*len(slots):][:len(slots)]
				for j, s := range slots {
					words[j] = counts[i][s]
				}
				words[sum] = math.Float64bits(sums[i])
			}
			var err error
			if rows, err = e.Append(rows, &metric.Snapshot{Run: w.run, Seq: w.seq, Wall: w.wall, Mono: w.mono, Interval: second, Frames: []metric.Frame{f}}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(rows))/ticks, "B/tick-rows")
		b.ReportMetric(float64(len(sealed(b, rows, sealBytes)))/ticks, "B/tick-columns")
		b.ReportMetric(float64(layouts), "layouts")
	}
}
