// SPDX-License-Identifier: Apache-2.0

// Package query answers PromQL over whatever can hand out metric.Columns: the
// live window and recordings alike. The language is not ours: Prometheus's
// own engine evaluates it, and API speaks Prometheus's HTTP dialect, so that
// every client of one is a client of the other.
//
// It is the only package that may import Prometheus, and nothing of
// Prometheus shows in what it exports. It stores nothing and reads no files.
//
// # How the data looks to the language
//
// A counter or gauge is a series of floats under its name and labels. An H2
// histogram is a native histogram with custom buckets (schema -53), whose
// bounds are exactly the H2 bounds; its sum, which H2 does not keep, is taken
// from the middles of the buckets and so is off by at most half a bucket's
// width per value, 6.25 % for the default grouping power.
//
// A native histogram that was scraped is what it was, with its own sum.
//
// The language counts time in milliseconds. Of several samples in one
// millisecond, which ticks finer than that give, the last is seen.
//
// A counter's start is given to the engine as Prometheus's start timestamp:
// rate and increase count from zero at a start within their range, and take
// a reset where the start says so. Where a column says that its series ended
// there is a stale marker, so that the series is gone from then on.
package query

import (
	"context"

	"rezolus/internal/metric"
)

// Reader is a source of series: a window in memory or a recording. It must
// be safe for concurrent use. All times are Unix nanoseconds, bounds are
// inclusive.
type Reader interface {
	// Bounds is the first and the last tick; 0, 0 when there is none.
	Bounds() (first, last int64)
	// Series calls yield for every series that existed in [from, to],
	// possibly more than once for one identity, until yield returns false.
	Series(from, to int64, yield func(*metric.Series) bool) error
	// Select returns the columns of the wanted series within [from, to],
	// one per identity, in no particular order.
	Select(ctx context.Context, from, to int64, want func(*metric.Series) bool) ([]metric.Column, error)
}

// Type says what an expression evaluates to.
type Type string

// The types of a result, as the HTTP API spells them.
const (
	Vector Type = "vector" // one value per series at one time
	Matrix Type = "matrix" // a line of values per series
	Scalar Type = "scalar" // one value, no labels
	String Type = "string" // a text
)

// Result is the answer to one query.
type Result struct {
	Type Type
	// Series are the lines of a matrix, sorted by their labels. A series of
	// a vector has one point or one histogram; a scalar is one point of one
	// series without labels; a string has none.
	Series []Series
	// Text and Time, in Unix milliseconds, are the value of a string.
	Text string
	Time int64
	// Warnings and Infos are what the engine noticed about the query.
	Warnings, Infos []string

	stats []byte // JSON, when it was asked for
}

// Series is one line of a result: samples under one set of labels.
type Series struct {
	Labels     []Label // sorted by name; the metric's name is label __name__
	Points     []Point
	Histograms []HistogramPoint
}

// Label is a label's name and its value.
type Label struct {
	Name, Value string
}

// Point is a value at a time.
type Point struct {
	T int64 // Unix milliseconds
	V float64
}

// HistogramPoint is a histogram at a time.
type HistogramPoint struct {
	T int64 // Unix milliseconds
	H Histogram
}

// Histogram is a histogram as the engine computed it: its counts may be
// fractions, and the counts of a difference negative.
type Histogram struct {
	Count, Sum float64
	Buckets    []Bucket // those that are not empty, ascending
}

// Bucket is one bucket of a histogram.
type Bucket struct {
	Lower, Upper float64
	Count        float64
	// Bounds says which bound belongs to the bucket: 0 the upper, 1 the
	// lower, 2 neither, 3 both. The buckets of our own metrics have 0.
	Bounds int
}

// nameLabel is the label that holds a metric's name.
const nameLabel = "__name__"

// Label is the value of the label name, empty when the series has no such
// label.
func (s *Series) Label(name string) string {
	for _, l := range s.Labels {
		if l.Name == name {
			return l.Value
		}
	}
	return ""
}
