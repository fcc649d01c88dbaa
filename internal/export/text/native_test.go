// SPDX-License-Identifier: Apache-2.0

package text

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// nativeTick is a tick of a native histogram of schema 0 and threshold 0.5,
// which has counts in some slots and a word for those of want.
func nativeTick(t *testing.T, n int64, kind metric.Kind, sum float64, want []hist.Slot, counts map[hist.Slot]uint64) *metric.Snapshot {
	t.Helper()
	slots := hist.Cover(nil, want)
	s, err := metric.NewSchema("scrape/x", []metric.Series{{Desc: &metric.Desc{Name: "rpc", Kind: kind, Slots: slots}, Start: 1}})
	if err != nil {
		t.Fatal(err)
	}
	f := metric.Frame{Schema: s, Values: make([]uint64, s.Words)}
	set := func(slot hist.Slot, w uint64) {
		i, ok := slices.BinarySearch(slots, slot)
		if !ok {
			t.Fatalf("no slot %d", slot)
		}
		f.Values[i] = w
	}
	total := uint64(0)
	for slot, w := range counts {
		set(slot, w)
		total += w
	}
	set(hist.SlotCount, total)
	set(hist.SlotSum, math.Float64bits(sum))
	set(hist.SlotThreshold, math.Float64bits(0.5))
	return &metric.Snapshot{Wall: 1_700_000_000_000_000_000 + n, Frames: []metric.Frame{f}}
}

func nativeTicks(t *testing.T, kind metric.Kind) []*metric.Snapshot {
	few := []hist.Slot{hist.BucketSlot(2, true), hist.BucketSlot(3, false)}
	more := append(slices.Clone(few), hist.BucketSlot(60, false))
	a := map[hist.Slot]uint64{hist.BucketSlot(2, true): 2, hist.SlotZero: 1, hist.BucketSlot(3, false): 4}
	b := map[hist.Slot]uint64{hist.BucketSlot(2, true): 2, hist.SlotZero: 2, hist.BucketSlot(3, false): 10, hist.BucketSlot(60, false): 3}
	return []*metric.Snapshot{nativeTick(t, 0, kind, 20, few, a), nativeTick(t, 1, kind, 50.5, more, b)}
}

func TestNativeCSV(t *testing.T) {
	got := write(t, Options{}, nativeTicks(t, metric.Native))
	want := strings.ReplaceAll(`time,time_ns,metric,labels,kind,unit,value,count,buckets
2023-11-14T22:13:20.000000000Z,1700000000000000000,rpc,,histogram,,20,7,-4..-2:2 -0.5..0.5:1 4..8:4
2023-11-14T22:13:20.000000001Z,1700000000000000001,rpc,,histogram,,50.5,17,-4..-2:2 -0.5..0.5:2 4..8:10 5.764607523034235e+17..1.152921504606847e+18:3
`, "\n", "\r\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Of what was counted since, though there are more slots than then: 1 in the
	// zero bucket, 6 up to 8, 3 beyond.
	got = write(t, Options{Quantiles: []float64{0, 0.1, 0.5, 0.7, 0.71}}, nativeTicks(t, metric.Native))
	want = strings.ReplaceAll(`time,time_ns,metric,labels,kind,unit,value,count,q0,q0.1,q0.5,q0.7,q0.71
2023-11-14T22:13:20.000000000Z,1700000000000000000,rpc,,histogram,,,,,,,,
2023-11-14T22:13:20.000000001Z,1700000000000000001,rpc,,histogram,,30.5,10,0.5,0.5,8,8,1.152921504606847e+18
`, "\n", "\r\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A gauge is what it holds.
	got = write(t, Options{Quantiles: []float64{0.1, 0.5}}, nativeTicks(t, metric.NativeGauge)[:1])
	if !strings.HasSuffix(got, "rpc,,gaugehistogram,,20,7,-4,8\r\n") {
		t.Errorf("got %s", got)
	}
}

func TestNativeJSON(t *testing.T) {
	lines := strings.Split(write(t, Options{Format: JSONLines}, nativeTicks(t, metric.Native)), "\n")
	if !strings.HasSuffix(lines[0], `"kind":"histogram","unit":"","count":7,"sum":20,"buckets":[[-4,-2,2],[-0.5,0.5,1],[4,8,4]]}`) || !json.Valid([]byte(lines[0])) {
		t.Errorf("got %s", lines[0])
	}
	lines = strings.Split(write(t, Options{Format: JSONLines, Quantiles: []float64{0.5, 1}}, nativeTicks(t, metric.Native)), "\n")
	if strings.Contains(lines[0], "count") || !strings.HasSuffix(lines[1], `"count":10,"sum":30.5,"quantiles":{"0.5":8,"1":1.152921504606847e+18}}`) {
		t.Errorf("got %s\n%s", lines[0], lines[1])
	}
	odd := nativeTick(t, 0, metric.Native, math.NaN(), nil, map[hist.Slot]uint64{})
	if got := write(t, Options{Format: JSONLines}, []*metric.Snapshot{odd}); !strings.HasSuffix(got, `"count":0,"sum":"NaN","buckets":[]}`+"\n") {
		t.Errorf("got %s", got)
	}
}

// TestNativeHistogramsThatBecomeCoarser have no difference to the row before.
func TestNativeHistogramsThatBecomeCoarser(t *testing.T) {
	all := nativeTicks(t, metric.Native)
	d := all[1].Frames[0].Schema.Series[0].Desc
	i, _ := slices.BinarySearch(d.Slots, hist.SlotSchema)
	all[1].Frames[0].Values[i] = math.MaxUint64 // -1
	if got := write(t, Options{Quantiles: []float64{0.5}}, all); strings.Count(got, ",,,\r\n") != 2 {
		t.Errorf("got %s", got)
	}
}
