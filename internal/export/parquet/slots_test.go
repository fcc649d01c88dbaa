// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// TestNativeHistogramsComeBack, of whole numbers and of floats, also when
// they get slots that they did not have.
func TestNativeHistogramsComeBack(t *testing.T) {
	var ticks []*metric.Snapshot
	for n := range 40 {
		buckets := []hist.Slot{hist.BucketSlot(3, false), hist.BucketSlot(-2, true)}
		if n >= 20 {
			buckets = append(buckets, hist.BucketSlot(4, false), hist.BucketSlot(900, false))
		}
		slots := hist.Cover(nil, buckets)
		schema, err := metric.NewSchema("s", []metric.Series{
			{Desc: &metric.Desc{Name: "n", Kind: metric.Native, Unit: "seconds", Slots: slots}, Start: 5},
			{Desc: &metric.Desc{Name: "g", Kind: metric.NativeGauge, Float: true, Slots: slots, Keys: []string{"slots"}}, Values: []string{"x"}}})
		if err != nil {
			t.Fatal(err)
		}
		s := &metric.Snapshot{Seq: uint64(n + 1), Wall: int64(n) * 1e9, Mono: int64(n) * 1e9, Frames: []metric.Frame{{Schema: schema}}}
		s.Frames[0].Resize(schema.Words)
		for i := range slots {
			s.Frames[0].Values[i], s.Frames[0].Values[len(slots)+i] = uint64(n*i), math.Float64bits(float64(n)/float64(i+1))
		}
		ticks = append(ticks, s)
	}
	for _, form := range []Form{Wide, Tidy} {
		b, done := write(t, Options{Form: form, RowGroup: 15}, ticks)
		if done.Columns != 2+4 {
			t.Errorf("%d columns, want one for each of the slots", done.Columns)
		}
		r := open(t, b)
		for i, want := range ticks {
			got, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(plain(want, false), plain(got, false)); diff != "" {
				t.Fatalf("tick %d differs (-want +got):\n%s", i, diff)
			}
		}
	}
}

func TestSlotsThatAreNone(t *testing.T) {
	for _, text := range []string{"", "x", "1", "1*0", "1*-1", "1*9999999", "5*2", "9*1 1*1", "1*1 "} {
		if d := (&metric.Desc{}); parseSlots(d, text) {
			t.Errorf("%q are %v", text, d.Slots)
		}
	}
}
