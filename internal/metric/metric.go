// SPDX-License-Identifier: Apache-2.0

// Package metric holds the words everything else is said in: what a metric
// is (Desc), which series a source has (Schema), what one read of one source
// gave (Frame) and what one tick of the agent gave (Snapshot).
//
// These types are the unit in memory, on the wire and on disk; other formats
// are conversions at the edge. The package does no input or output and knows
// neither the kernel nor any query language.
package metric

import (
	"fmt"
	"math"
	"regexp"
	"slices"

	"rezolus/internal/hist"
)

// Kind says how the words of a series are to be read.
type Kind uint8

// The kinds of metric.
const (
	// Counter is one word that only grows from the series' start on.
	Counter Kind = iota + 1
	// Gauge is one word that goes up and down: an int64, or a float64 by
	// its bits where Desc.Float is set.
	Gauge
	// Histogram is Power.Buckets() words, each a counter.
	Histogram
	// Native is a native histogram of Prometheus: a word for each of
	// Desc.Slots, whose counts only grow.
	Native
	// NativeGauge is one whose counts go up and down.
	NativeGauge
)

// Native reports whether the words of the kind are those of Desc.Slots.
func (k Kind) Native() bool { return k == Native || k == NativeGauge }

// Buckets reports whether a series of the kind is a distribution: many words,
// of which few change from one sample to the next.
func (k Kind) Buckets() bool { return k == Histogram || k.Native() }

// String is the kind's name in lower case, as TYPE lines and pages write it.
// They do not tell native histograms from others.
func (k Kind) String() string {
	switch k {
	case Counter:
		return "counter"
	case Gauge:
		return "gauge"
	case Histogram, Native:
		return "histogram"
	case NativeGauge:
		return "gaugehistogram"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Unit is the unit of a value, spelled out. None is a plain count.
type Unit string

// The units of the built-in metrics. Others are allowed.
const (
	None        Unit = ""
	Nanoseconds Unit = "nanoseconds"
	Bytes       Unit = "bytes"
)

// Desc describes a metric: all that its series share.
type Desc struct {
	Name  string     // the field's standard term in snake case
	Help  string     // one sentence without a full stop
	Unit  Unit       // unit of the value, or of what a histogram counts
	Kind  Kind       //
	Float bool       // a gauge's word, or a native histogram's count, is a float64's bits
	Power hist.Power // grouping power; histograms only
	// Slots say what the words of a native histogram are. All series of a
	// metric have the same; when one needs more there is a new schema.
	Slots   []hist.Slot
	Keys    []string // label keys, sorted
	Sampler string   // the switch in the configuration that turns it on
}

var (
	namePattern = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	keyPattern  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
)

// Words is the number of words one series of the metric takes in a frame.
func (d *Desc) Words() int {
	switch {
	case d.Kind == Histogram:
		return d.Power.Buckets()
	case d.Kind.Native():
		return len(d.Slots)
	}
	return 1
}

// Validate reports the first thing that keeps d from being a metric.
func (d *Desc) Validate() error {
	switch {
	case !namePattern.MatchString(d.Name):
		return fmt.Errorf("metric name %q: want lower-case letters, digits and _, a letter first", d.Name)
	case d.Kind < Counter || d.Kind > NativeGauge:
		return fmt.Errorf("metric %s: unknown kind %d", d.Name, d.Kind)
	case d.Kind == Histogram && !d.Power.Valid():
		return fmt.Errorf("metric %s: grouping power %d: %w", d.Name, d.Power, hist.ErrPower)
	case d.Kind != Histogram && d.Power != 0:
		return fmt.Errorf("metric %s: a %s has no grouping power", d.Name, d.Kind)
	case d.Float && d.Kind != Gauge && !d.Kind.Native():
		return fmt.Errorf("metric %s: only gauges and native histograms are floats", d.Name)
	case d.Kind.Native() && hist.CheckSlots(d.Slots) != nil:
		return fmt.Errorf("metric %s: %w", d.Name, hist.ErrSlots)
	case !d.Kind.Native() && d.Slots != nil:
		return fmt.Errorf("metric %s: a %s has no slots", d.Name, d.Kind)
	case !slices.IsSorted(d.Keys):
		return fmt.Errorf("metric %s: label keys %q are not sorted", d.Name, d.Keys)
	}
	for i, k := range d.Keys {
		if !keyPattern.MatchString(k) {
			return fmt.Errorf("metric %s: label key %q is not a label name", d.Name, k)
		}
		if i > 0 && d.Keys[i-1] == k {
			return fmt.Errorf("metric %s: label key %q twice", d.Name, k)
		}
	}
	return nil
}

// Value is the value of a counter's or gauge's word.
func (d *Desc) Value(word uint64) float64 {
	switch {
	case d.Kind == Counter:
		return float64(word)
	case d.Float:
		return math.Float64frombits(word)
	}
	return float64(int64(word))
}
