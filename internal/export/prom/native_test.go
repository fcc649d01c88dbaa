// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"math"
	"strings"
	"testing"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// natives are a native histogram of whole numbers and one of floats that is a
// gauge, whose counts are 9 and 2.5.
func natives(t *testing.T, beside ...metric.Series) *metric.Snapshot {
	slots := hist.Cover(nil, []hist.Slot{hist.BucketSlot(3, false)})
	all := schema(t, "scrape/x", append(beside,
		metric.Series{Desc: &metric.Desc{Name: "rpc_seconds", Help: "times", Kind: metric.Native, Slots: slots, Keys: []string{"op"}}, Values: []string{"a"}},
		metric.Series{Desc: &metric.Desc{Name: "depth", Help: "depths", Kind: metric.NativeGauge, Float: true, Slots: slots}})...)
	f := metric.Frame{Schema: all, Values: make([]uint64, all.Words)}
	for i, s := range slots {
		at := len(beside) + i
		switch s {
		case hist.SlotCount:
			f.Values[at], f.Values[at+len(slots)] = 9, math.Float64bits(2.5)
		case hist.SlotSum:
			f.Values[at], f.Values[at+len(slots)] = math.Float64bits(-0.75), math.Float64bits(4)
		case hist.BucketSlot(3, false):
			f.Values[at], f.Values[at+len(slots)] = 9, math.Float64bits(2.5)
		}
	}
	return &metric.Snapshot{Frames: []metric.Frame{f}}
}

func TestNativeHistograms(t *testing.T) {
	const times = "# TYPE rpc_seconds histogram\nrpc_seconds_bucket{op=\"a\",le=\"+Inf\"} 9\nrpc_seconds_sum{op=\"a\"} -0.75\nrpc_seconds_count{op=\"a\"} 9\n"
	w := NewWriter()
	if got := string(w.Append(nil, natives(t), Text)); got != "# HELP rpc_seconds times\n"+times {
		t.Errorf("got\n%s", got)
	}
	const depths = "# TYPE depth gaugehistogram\ndepth_bucket{le=\"+Inf\"} 2.5\ndepth_gsum 4.0\ndepth_gcount 2.5\n"
	if got := string(w.Append(nil, natives(t), OpenMetrics)); got != "# HELP depth depths\n"+depths+"# HELP rpc_seconds times\n"+times+"# EOF\n" {
		t.Errorf("got\n%s", got)
	}
}

// TestAClassicHistogramBesideANativeOne stands for both: there is one family of
// a name.
func TestAClassicHistogramBesideANativeOne(t *testing.T) {
	classic := metric.Series{Desc: &metric.Desc{Name: "rpc_seconds_bucket", Kind: metric.Counter, Keys: []string{"le", "op"}}, Values: []string{"+Inf", "a"}}
	got := string(NewWriter().Append(nil, natives(t, classic), Text))
	if strings.Contains(got, "TYPE rpc_seconds histogram") || strings.Count(got, "rpc_seconds_bucket{") != 1 {
		t.Errorf("got\n%s", got)
	}
}
