// SPDX-License-Identifier: Apache-2.0

// Package parquet writes ticks to Parquet files and reads them back: one row
// a tick, one column a series. docs/parquet.md describes the files.
//
// Two forms are written. Wide is that of the Rust implementation of Rezolus,
// with its column names, types and metadata, so that its viewer and tools
// open the file. Tidy has a time that is a timestamp and the columns'
// own names, for DuckDB, pandas and the like. Both keep every word of every
// frame, and the moment from which each series counts; both are read back,
// as are the files of the Rust implementation.
//
// A Writer takes ticks as they come, in one pass and in bounded memory: the
// names of a Parquet file's columns stand at its end, so a series may appear
// at any time. It knows nothing of recordings.
package parquet

import (
	"encoding/json"
	"errors"
)

// Form is how a file is laid out.
type Form string

// The forms.
const (
	Wide Form = "wide"
	Tidy Form = "tidy"
)

// What can be wrong with bytes that should be a Parquet file of ticks.
var (
	// ErrForeign: not a Parquet file, or one without a column of times.
	ErrForeign = errors.New("not a Parquet file of metrics")
	// ErrDamaged: a Parquet file that cannot be read as it is.
	ErrDamaged = errors.New("damaged Parquet file")
	// ErrUnsupported: written by a version of rezolus that is newer.
	ErrUnsupported = errors.New("made by a newer rezolus")
)

// Keys of the metadata of a column, as the Rust implementation has them. All
// others are labels. A label that has one of these names is written behind
// labelPrefix.
const (
	keyMetric   = "metric"
	keyType     = "metric_type"
	keyUnit     = "unit"
	keySampler  = "sampler"
	keyPower    = "grouping_power"
	keyMaxPower = "max_value_power"
	labelPrefix = "label:"
)

// keyLife tells apart the columns of lives of one series that were there at
// once: it is in all but the first. To readers that do not know it, it is a
// label, so that no life stands in for another.
const keyLife = "life"

var reserved = map[string]bool{keyMetric: true, keyType: true, keyUnit: true,
	keySampler: true, keyPower: true, keyMaxPower: true, keySlots: true}

// maxValuePower is the power of two that bounds what a histogram counts: all
// of uint64.
const maxValuePower = "64"

// Keys of the metadata of a file. The first are those of the Rust
// implementation; metaBounds, with a power behind it, and factsKey are ours.
const (
	metaSource       = "source"
	metaVersion      = "version"
	metaInterval     = "sampling_interval_ms"
	metaDescriptions = "descriptions"
	metaNode         = "node"
	metaInstance     = "instance"
	metaPerSource    = "per_source_metadata"
	metaEvents       = "events"
	metaBounds       = "histogram_bounds_"
	factsKey         = "rezolus"
)

// Names of the columns that are not series. Those of series never have a
// colon before their labels, except the wide form's ":buckets".
const (
	columnTimestamp = "timestamp"
	columnTime      = "time"
	columnDuration  = "duration"
	bucketsSuffix   = ":buckets"
	beginSuffix     = ":window_begin"
	widthSuffix     = ":window_width"
)

// factsVersion is the version of facts that is written and read.
const factsVersion = 1

// facts are what columns cannot say: which frames they were, and what
// changed between which rows. Rows are counted from 0.
type facts struct {
	Version   int           `json:"version"`
	Form      Form          `json:"form"`
	Sources   []sourceFacts `json:"sources"`
	Starts    []startFacts  `json:"starts,omitempty"`
	Ends      []endFacts    `json:"ends,omitempty"`
	Runs      []runFacts    `json:"runs,omitempty"`
	Intervals [][2]int64    `json:"intervals,omitempty"` // row, nanoseconds
	Clock     [][2]int64    `json:"clock,omitempty"`     // row, monotonic minus wall
	Gaps      []gapFacts    `json:"gaps,omitempty"`
	Lost      []lostFacts   `json:"lost,omitempty"`
	Breaks    []breakFacts  `json:"breaks,omitempty"`
}

// spans are half-open ranges of column numbers.
type spans [][2]int

func (s *spans) add(i int) {
	if last := len(*s) - 1; last >= 0 && (*s)[last][1] == i {
		(*s)[last][1]++
		return
	}
	*s = append(*s, [2]int{i, i + 1})
}

// each yields every number.
func (s spans) each(yield func(int)) {
	for _, r := range s {
		for i := r[0]; i < r[1]; i++ {
			yield(i)
		}
	}
}

type sourceFacts struct {
	Name    string `json:"name"`
	Columns spans  `json:"columns"`
}

// startFacts says that from a row on columns count from a moment on.
type startFacts struct {
	Row     int64 `json:"row"`
	Start   int64 `json:"start"` // Unix nanoseconds
	Columns spans `json:"columns"`
}

// endFacts says that at a row the source of columns came without them.
type endFacts struct {
	Row     int64 `json:"row"`
	Columns spans `json:"columns"`
}

// breakFacts is a gap that stands before a row.
type breakFacts struct {
	Row    int64  `json:"row"`
	From   int64  `json:"from"`
	To     int64  `json:"to"`
	Ticks  uint64 `json:"ticks"`
	Reason string `json:"reason"`
}

type runFacts struct {
	Row     int64  `json:"row"`
	ID      []byte `json:"id"`
	Boot    []byte `json:"boot"`
	Started int64  `json:"started"`
	Host    string `json:"host,omitempty"`
	Kernel  string `json:"kernel,omitempty"`
	Arch    string `json:"arch,omitempty"`
	Version string `json:"version,omitempty"`
}

// gapFacts says that the sequence number of a row is not that of the row
// before plus one, or that the agent skipped ticks.
type gapFacts struct {
	Row    int64  `json:"row"`
	Seq    uint64 `json:"seq"`
	Missed uint64 `json:"missed,omitempty"`
}

// lostFacts says how many events a source had lost from a row on.
type lostFacts struct {
	Row    int64  `json:"row"`
	Source string `json:"source"`
	Lost   uint64 `json:"lost"`
}

// Event is a line of text with a time.
type Event struct {
	Time int64  // Unix nanoseconds
	Text string // what happened
}

// Gap is a stretch of time without ticks, and why.
type Gap struct {
	From, To int64  // Unix nanoseconds
	Ticks    uint64 // how many are missing; 0 when that is not known
	Reason   string
}

// eventsJSON are the events of a file, and eventJSON is one, as the Rust
// implementation keeps them.
type eventsJSON struct {
	Events []eventJSON `json:"events"`
}

type eventJSON struct {
	Time int64  `json:"timestamp"`
	Text string `json:"description"`
}

func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // only of types that are written here
	}
	return string(b)
}
