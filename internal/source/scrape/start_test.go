// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// TestResets finds them in histograms that do not say when they began.
func TestResets(t *testing.T) {
	h := func(schema int32, threshold float64, zero, count uint64, first int32, counts ...int64) *dto.Histogram {
		deltas, before := []int64{}, int64(0)
		for _, c := range counts {
			deltas, before = append(deltas, c-before), c
		}
		return &dto.Histogram{SampleCount: &count, Schema: &schema, ZeroThreshold: &threshold, ZeroCount: &zero,
			PositiveSpan: []*dto.BucketSpan{{Offset: &first, Length: proto.Uint32(uint32(len(counts)))}}, PositiveDelta: deltas}
	}
	before := h(1, 0.01, 2, 12, 1, 1, 2, 3, 4) // (1, 1.41] (1.41, 2] (2, 2.83] (2.83, 4]
	for _, c := range []struct {
		name string
		now  *dto.Histogram
		want bool
	}{
		{"the same", before, false},
		{"more", h(1, 0.01, 2, 13, 1, 1, 2, 4, 4), false},
		{"fewer", h(1, 0.01, 2, 11, 1, 1, 2, 3, 3), true},
		{"more, but fewer in a bucket", h(1, 0.01, 2, 13, 1, 0, 2, 4, 5), true},
		{"a bucket is gone", h(1, 0.01, 2, 22, 2, 2, 3, 15), true},
		{"coarser", h(0, 0.01, 2, 12, 1, 3, 7), false},
		{"coarser, and fewer", h(0, 0.01, 3, 12, 1, 2, 7), true},
		{"finer", h(2, 0.01, 2, 100, 1, 10, 10, 20, 20, 10, 10, 10, 8), true},
		{"a wider zero", h(1, 2, 5, 12, 3, 3, 4), false},
		{"a wider zero, that lost some", h(1, 2, 4, 13, 3, 3, 6), true},
		{"a zero that ends in a bucket", h(1, 1.7, 5, 12, 3, 3, 4), true},
		{"a narrower zero", h(1, 0.005, 3, 13, 1, 1, 2, 3, 4), true},
		{"fewer in the zero", h(1, 0.01, 1, 13, 1, 2, 2, 4, 4), true},
	} {
		r := newBinaries(t, Endpoint{})
		r.says(histogramOf("x", before))
		if s := find(&r.frame, "x"); s.Start != 0 {
			t.Fatalf("it began at %d, which nobody said", s.Start)
		}
		r.says(histogramOf("x", c.now))
		want := int64(0)
		if c.want {
			want = r.wall
		}
		if s := find(&r.frame, "x"); s.Start != want {
			t.Errorf("%s: start %d, want %d", c.name, s.Start, want)
		}
	}
}

// TestCreated is of starts that the endpoint tells.
func TestCreated(t *testing.T) {
	r := newBinaries(t, Endpoint{})
	at := func(ns int64, n float64) []*dto.MetricFamily {
		stamp := timestamppb.New(time.Unix(0, ns))
		return []*dto.MetricFamily{family1("jobs_total", dto.MetricType_COUNTER, &dto.Metric{Counter: &dto.Counter{Value: &n, CreatedTimestamp: stamp}}),
			histogramOf("h", &dto.Histogram{SampleCount: proto.Uint64(uint64(n)), ZeroCount: proto.Uint64(uint64(n)), CreatedTimestamp: stamp,
				Bucket: []*dto.Bucket{{UpperBound: proto.Float64(1), CumulativeCount: proto.Uint64(1)}}}),
			family1("s", dto.MetricType_SUMMARY, &dto.Metric{Summary: &dto.Summary{SampleCount: proto.Uint64(uint64(n)), CreatedTimestamp: stamp}})}
	}
	all := func(want int64) {
		t.Helper()
		for _, name := range []string{"jobs_total", "h", "h_bucket", "h_count", "s_count"} {
			if got := find(&r.frame, name).Start; got != want {
				t.Errorf("%s began at %d, want %d", name, got, want)
			}
		}
		for _, name := range []string{"h_sum", "s_sum"} {
			if got := find(&r.frame, name).Start; got != 0 {
				t.Errorf("%s, which is no counter, began at %d", name, got)
			}
		}
	}
	r.says(at(5e17+7, 10)...)
	all(5e17 + 7)
	before := r.schema
	r.says(at(5e17+9, 11)...) // reckoned anew: not after the last scrape
	all(5e17 + 7)
	if r.schema != before {
		t.Error("the same starts make another schema")
	}
	again := r.wall + 3e8
	r.says(at(again, 12)...) // it began anew, and has counted more than before
	all(again)
	r.says(at(5e17, 3)...) // it did so again, and its clock was set back
	if got := find(&r.frame, "jobs_total").Start; got != r.wall {
		t.Errorf("a counter that fell began at %d, want %d", got, r.wall)
	}
	r.says(at(2e18, 12)...) // in the future
	all(r.wall)
	r = newBinaries(t, Endpoint{})
	r.says(at(1e18+15e8, 1)...) // between question and answer
	all(r.wall)
	before = r.schema
	first := r.wall
	r.says(at(1e18+15e8, 2)...)
	if all(first); r.schema != before {
		t.Error("a start that was known is a reset")
	}
}
