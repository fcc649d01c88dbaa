// SPDX-License-Identifier: Apache-2.0

package metric

// Column is one series over a range of time, as stores hand it to queries.
// Slices with one element a sample are of equal length. A column is read
// only and may be shared.
type Column struct {
	Desc   *Desc
	Labels []string // label values, in the order of Desc.Keys
	Time   []int64  // Unix nanoseconds, strictly ascending
	Start  []int64  // the start that held at each sample, Unix nanoseconds
	Word   []uint64 // the word of a counter or gauge; nil for histograms of all kinds
	// Gone are the ticks at which the series was found to have ended (the
	// first tick of its source without it), ascending. Queries end it there.
	Gone []int64

	// A histogram's sample i adds the steps Step[End[i-1]:End[i]] to the
	// buckets of sample i-1 (the first to none). After a reset the steps
	// take every bucket to its new count, so a step may be negative.
	Step []Step
	End  []int
}

// Step is a change of one bucket from one sample to the next. A native
// histogram's bucket is a hist.Slot: samples may have been recorded with
// different slots, and Desc has those of one.
type Step struct {
	Bucket int32
	Add    int64
}
