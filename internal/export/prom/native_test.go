// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

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

// families are what a snapshot is as protocol buffers, read by Prometheus's own
// messages.
func families(t *testing.T, b []byte) map[string]*dto.MetricFamily {
	t.Helper()
	all := map[string]*dto.MetricFamily{}
	for r := bytes.NewReader(b); r.Len() > 0; {
		var f dto.MetricFamily
		if err := protodelim.UnmarshalFrom(r, &f); err != nil {
			t.Fatal(err)
		}
		if all[f.GetName()] != nil {
			t.Errorf("%s is there twice", f.GetName())
		}
		all[f.GetName()] = &f
	}
	return all
}

func TestProtobuf(t *testing.T) {
	s := snapshot(t)
	s.Frames[1].Schema.Series[0].Start = 1_700_000_000_000_000_007
	all := families(t, NewWriter().Append(nil, s, Protobuf))
	want := map[string]string{
		"requests":  `name:"requests" help:"says \"what\" and \\" type:COUNTER metric:{label:{name:"path" value:"/a\"\\\n"} counter:{value:23}} metric:{label:{name:"path" value:"/b"} counter:{value:101 created_timestamp:{seconds:1700000000 nanos:7}}}`,
		"hit_ratio": `name:"hit_ratio" help:"hits" type:GAUGE metric:{gauge:{value:0.25}}`,
		"level":     `name:"level" help:"below zero too" type:GAUGE metric:{gauge:{value:-1}}`,
	}
	for name, text := range want {
		var f dto.MetricFamily
		if err := prototext.Unmarshal([]byte(text), &f); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(&f, all[name]) {
			t.Errorf("%s is %v", name, all[name])
		}
	}
	h := all["latency"].GetMetric()[0].GetHistogram()
	if len(all) != 4 || all["latency"].GetUnit() != "nanoseconds" || h.GetSampleCount() != 5 || len(h.Bucket) != 29 || h.Bucket[0].GetUpperBound() != 255 ||
		h.Bucket[0].GetCumulativeCount() != 2 || h.Bucket[28].GetCumulativeCount() != 4 || h.GetSchema() != 0 || len(h.PositiveSpan) != 0 {
		t.Errorf("%d families, %v", len(all), all["latency"])
	}
}

// TestNativeProtobuf gives any native histogram back as its buckets were.
func TestNativeProtobuf(t *testing.T) {
	buckets := map[hist.Slot]float64{hist.BucketSlot(-3, true): 1, hist.BucketSlot(-2, true): 7, hist.BucketSlot(4, true): 2,
		hist.BucketSlot(-1, false): 3, hist.BucketSlot(0, false): 5, hist.BucketSlot(9, false): 4}
	for _, float := range []bool{false, true} {
		d := &metric.Desc{Name: "h", Help: "x", Kind: metric.Native, Float: float, Slots: hist.Cover(nil, slices.Sorted(maps.Keys(buckets)))}
		s := schema(t, "a", metric.Series{Desc: d, Start: 5})
		f := metric.Frame{Schema: s, Values: make([]uint64, s.Words)}
		for i, slot := range d.Slots {
			v := buckets[slot]
			switch slot {
			case hist.SlotZero:
				v = 6
			case hist.SlotCount:
				v = 28
			case hist.SlotSum, hist.SlotThreshold:
				f.Values[i] = math.Float64bits(0.125)
				continue
			case hist.SlotSchema:
				f.Values[i] = math.MaxUint64 - 2
				continue
			}
			if f.Values[i] = uint64(v); float {
				f.Values[i] = math.Float64bits(v)
			}
		}
		all := families(t, NewWriter().Append(nil, &metric.Snapshot{Frames: []metric.Frame{f}}, Protobuf))
		text := `sample_sum:0.125 schema:-3 zero_threshold:0.125 created_timestamp:{seconds:0 nanos:5}
			negative_span:{offset:-3 length:2} negative_span:{offset:5 length:1} positive_span:{offset:-1 length:2} positive_span:{offset:8 length:1}`
		if float {
			text += ` sample_count_float:28 zero_count_float:6 negative_count:[1,7,2] positive_count:[3,5,4]`
		} else {
			text += ` sample_count:28 zero_count:6 negative_delta:[1,6,-5] positive_delta:[3,2,-1]`
		}
		var want dto.Histogram
		if err := prototext.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		if got := all["h"].GetMetric()[0].GetHistogram(); !proto.Equal(&want, got) {
			t.Errorf("got %v\nwant %v", got, &want)
		}
	}
	all := families(t, NewWriter().Append(nil, natives(t, metric.Series{Desc: &metric.Desc{Name: "rpc_seconds_bucket", Kind: metric.Counter}}), Protobuf))
	if len(all) != 3 || all["depth"].GetType() != dto.MetricType_GAUGE_HISTOGRAM || all["rpc_seconds"].GetMetric()[0].GetHistogram().GetSampleCount() != 9 {
		t.Errorf("%v", all)
	}
}
