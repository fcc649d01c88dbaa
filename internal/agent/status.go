// SPDX-License-Identifier: Apache-2.0

package agent

import "time"

// Status is how the agent fares.
type Status struct {
	Version   string           `json:"version"`
	Uptime    float64          `json:"uptime_seconds"`
	Ticks     uint64           `json:"ticks"`
	Missed    uint64           `json:"ticks_missed"`
	Dropped   uint64           `json:"ticks_dropped"`
	Realtime  bool             `json:"realtime"` // ticks go before other work now
	Sources   []SourceStatus   `json:"sources"`
	Consumers []ConsumerStatus `json:"consumers"`
}

// SourceStatus is how one source fares.
type SourceStatus struct {
	Name string `json:"name"`
	// Every is how often it is read at most, in seconds; 0: at every tick;
	// negative: not now.
	Every  float64 `json:"every_seconds"`
	Reads  uint64  `json:"reads"`
	ReadNs uint64  `json:"read_ns"` // all reads together
	Errors uint64  `json:"errors"`
	Lost   uint64  `json:"lost_events"`
	// LastError is the last read's that failed, whenever that was.
	LastError string `json:"last_error,omitempty"`
	// HangsFor is how long the read under way has taken, in seconds.
	HangsFor float64 `json:"reading_for_seconds,omitempty"`
}

// ConsumerStatus is one consumer.
type ConsumerStatus struct {
	Name     string  `json:"name"`
	Interval float64 `json:"interval_seconds"`
	Dropped  uint64  `json:"dropped"`
}

// Status says how the agent fares now.
func (a *Agent) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Mono()
	s := Status{Version: a.run.Version, Uptime: time.Duration(now - a.started).Seconds(), Ticks: a.stats.ticks.Load(),
		Missed: a.stats.missed.Load(), Dropped: a.stats.dropped.Load(), Realtime: a.realtime.on.Load()}
	for _, r := range a.sources {
		e := SourceStatus{Name: r.Name(), Every: time.Duration(r.every.Load()).Seconds(), Reads: r.reads.Load(), ReadNs: r.spent.Load(), Errors: r.errors.Load(), Lost: r.lost.Load()}
		if last := r.lastError.Load(); last != nil {
			e.LastError = *last
		}
		if since := r.since.Load(); since != 0 {
			e.HangsFor = time.Duration(now - since).Seconds()
		}
		s.Sources = append(s.Sources, e)
	}
	for _, c := range a.subs {
		s.Consumers = append(s.Consumers, ConsumerStatus{c.name, time.Duration(c.interval).Seconds(), c.dropped.Load()})
	}
	return s
}
