// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"testing"

	"rezolus/internal/metric"
)

// TestAnEmptyLabelIsNone: a metric that gains a label key in another schema
// goes on in the series that do not have it.
func TestAnEmptyLabelIsNone(t *testing.T) {
	w := NewWindow(1 << 20)
	run := &metric.Run{}
	for seq, keys := range [][]string{{"a"}, {"a", "b"}} {
		values := []string{"x", ""}[:len(keys)]
		schema, err := metric.NewSchema("s", []metric.Series{{Desc: &metric.Desc{Name: "m", Kind: metric.Counter, Keys: keys, Sampler: "s"}, Values: values}})
		if err != nil {
			t.Fatal(err)
		}
		wall := int64(seq+1) * 1e9
		if err := w.Put(&metric.Snapshot{Run: run, Seq: uint64(seq + 1), Wall: wall, Mono: wall, Interval: 1e9,
			Frames: []metric.Frame{{Schema: schema, Begin: wall, End: wall, Values: []uint64{uint64(10 * (seq + 1))}}}}); err != nil {
			t.Fatal(err)
		}
	}
	columns, err := w.Select(context.Background(), 0, 3e9, func(*metric.Series) bool { return true })
	if err != nil || len(columns) != 1 || len(columns[0].Time) != 2 {
		t.Fatalf("%d columns, %v; want one with two ticks: %+v", len(columns), err, columns)
	}
}
