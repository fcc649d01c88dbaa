// SPDX-License-Identifier: Apache-2.0

package hindsight

import "time"

// Status is how a ring fares.
type Status struct {
	Name     string  `json:"name"`
	Path     string  `json:"path"`
	State    string  `json:"state"` // recording, waiting or failing
	Reason   string  `json:"reason,omitempty"`
	Interval float64 `json:"interval_seconds"`
	Lookback float64 `json:"lookback_seconds"` // that is wanted
	Retained float64 `json:"retained_seconds"` // that there is
	// AtBound tells that the oldest ticks have begun to go.
	AtBound      bool   `json:"at_retention_bound"`
	Oldest       int64  `json:"oldest_ns"` // Unix nanoseconds
	Newest       int64  `json:"newest_ns"`
	Ticks        uint64 `json:"ticks"`      // kept since the start
	Lost         uint64 `json:"ticks_lost"` // not kept since then
	Segments     int    `json:"segments"`
	Bytes        int64  `json:"bytes"`
	Limit        int64  `json:"bytes_limit"`
	Free         int64  `json:"free_bytes"` // on the file system
	Reserve      int64  `json:"reserve_bytes"`
	Dropped      uint64 `json:"segments_dropped"`
	DroppedBytes int64  `json:"dropped_bytes"`
	Errors       uint64 `json:"errors"` // times it began to fail
	// HangsFor is how long the disk has not answered, in seconds.
	HangsFor float64 `json:"disk_hangs_seconds,omitempty"`
}

// Status is how the ring fared a moment ago.
func (k *Keeper) Status() Status {
	s := Status{Name: k.o.Name, Path: k.o.Ring.Dir, State: "recording", Interval: k.o.Ring.Interval.Seconds(),
		Lookback: k.o.Ring.Age.Seconds(), Limit: k.o.Ring.Bytes, Ticks: k.ticks.Load(), Lost: k.lost.Load(), Errors: k.errors.Load()}
	k.mu.Lock()
	trouble := k.trouble
	k.mu.Unlock()
	if r := k.state.Load(); r != nil {
		s.Segments, s.Bytes, s.Oldest, s.Newest = r.Segments, r.Bytes, r.Oldest, r.Newest
		s.Free, s.Reserve, s.Dropped, s.DroppedBytes = r.Free, r.Reserve, r.Dropped, r.DroppedBytes
		s.Retained, s.AtBound = time.Duration(max(0, r.Newest-r.Oldest)).Seconds(), r.Dropped > 0
		if trouble == nil {
			trouble = r.Trouble
		}
	}
	if d := k.hangsFor(); d >= k.hangs {
		s.HangsFor = d.Seconds()
	}
	switch {
	case s.HangsFor > 0:
		s.State, s.Reason = "failing", "the disk does not answer"
	case trouble == errNotOpen:
		s.State, s.Reason = "waiting", "there was no tick yet"
	case trouble != nil:
		s.State, s.Reason = "failing", trouble.Error()
	}
	return s
}
