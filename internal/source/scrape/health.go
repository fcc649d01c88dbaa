// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"sync"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// samplerName is the sampler of all that is here, and the source of Health.
const samplerName = "scrape"

// failure is what made a scrape fail.
type failure int

const (
	byConnection failure = iota // none was made, or it broke
	byTimeout
	byStatus  // the answer says that it is none
	bySize    // above MaxBytes
	byContent // it does not parse, or is cut off
	failures
)

var failureNames = [failures]string{"connection", "timeout", "status", "size", "content"}

var (
	up = &metric.Desc{Name: "scrape_up", Help: "1 if the last scrape of an endpoint was good, else 0", Kind: metric.Gauge,
		Keys: []string{endpointKey}, Sampler: samplerName}
	duration = &metric.Desc{Name: "scrape_duration", Help: "time the last scrape of an endpoint took, good or not", Unit: metric.Nanoseconds,
		Kind: metric.Gauge, Keys: []string{endpointKey}, Sampler: samplerName}
	size = &metric.Desc{Name: "scrape_size", Help: "what the last answer of an endpoint measured, unpacked", Unit: metric.Bytes,
		Kind: metric.Gauge, Keys: []string{endpointKey}, Sampler: samplerName}
	held = &metric.Desc{Name: "scrape_series", Help: "series of an endpoint in its last good scrape", Kind: metric.Gauge,
		Keys: []string{endpointKey}, Sampler: samplerName}
	scrapes = &metric.Desc{Name: "scrape_requests", Help: "scrapes of an endpoint, good or not", Kind: metric.Counter,
		Keys: []string{endpointKey}, Sampler: samplerName}
	failedScrapes = &metric.Desc{Name: "scrape_failures", Help: "scrapes of an endpoint that failed, by what did", Kind: metric.Counter,
		Keys: []string{endpointKey, "reason"}, Sampler: samplerName}
	droppedSamples = &metric.Desc{Name: "scrape_dropped", Help: "samples of an endpoint in good scrapes that were not taken", Kind: metric.Counter,
		Keys: []string{endpointKey, "reason"}, Sampler: samplerName}
	descs = []*metric.Desc{up, duration, size, held, scrapes, failedScrapes, droppedSamples}
)

// fate is how an endpoint fares.
type fate struct {
	endpoint string

	mu       sync.Mutex
	up       bool
	duration int64
	size     int
	series   int
	scrapes  uint64
	failures [failures]uint64
	dropped  [reasons]uint64
}

// tell notes a scrape.
func (a *fate) tell(t *table, size int, took int64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.scrapes++
	a.up, a.duration, a.size = err == nil, took, size
	if err != nil {
		a.failures[why(err)]++
		return
	}
	a.series = len(t.laid)
	for i, n := range t.drops {
		a.dropped[i] += n
	}
}

// lost is the number of samples that were dropped.
func (a *fate) lost() (sum uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.dropped {
		sum += n
	}
	return sum
}

// append appends the words of an endpoint's series, or nothing before its
// first scrape ended.
func (a *fate) append(to []uint64) []uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.scrapes == 0 {
		return to
	}
	good := uint64(0)
	if a.up {
		good = 1
	}
	to = append(to, good, uint64(a.duration), uint64(a.size), uint64(a.series), a.scrapes)
	to = append(to, a.failures[:]...)
	return append(to, a.dropped[:]...)
}

// Health is the source of how all endpoints fare. It waits for none.
type Health struct {
	endpoints []*fate
	schema    *metric.Schema
	words     []uint64
	start     int64
}

// add adds an endpoint, before the first Read.
func (h *Health) add(endpoint string) *fate {
	h.start = host.Wall()
	a := &fate{endpoint: endpoint}
	h.endpoints = append(h.endpoints, a)
	return a
}

// Name is "scrape".
func (h *Health) Name() string { return samplerName }

// Read fills f. It allocates nothing unless an endpoint was scraped for the
// first time.
func (h *Health) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	h.words = h.words[:0]
	var series []metric.Series
	for _, a := range h.endpoints {
		h.words = a.append(h.words)
	}
	if h.schema == nil || len(h.words) != h.schema.Words {
		h.words = h.words[:0]
		for _, a := range h.endpoints {
			before := len(h.words)
			if h.words = a.append(h.words); len(h.words) > before {
				series = append(series, a.describe(h.start)...)
			}
		}
		schema, err := metric.NewSchema(samplerName, series)
		if err != nil {
			return err
		}
		h.schema = schema
	}
	f.Schema, f.Lost = h.schema, 0
	f.Resize(h.schema.Words)
	copy(f.Values, h.words)
	f.End = host.Mono()
	return nil
}

// describe are the series whose words append appends.
func (a *fate) describe(start int64) []metric.Series {
	var all []metric.Series
	for _, d := range []*metric.Desc{up, duration, size, held} {
		all = append(all, metric.Series{Desc: d, Values: []string{a.endpoint}})
	}
	all = append(all, metric.Series{Desc: scrapes, Values: []string{a.endpoint}, Start: start})
	for _, name := range failureNames {
		all = append(all, metric.Series{Desc: failedScrapes, Values: []string{a.endpoint, name}, Start: start})
	}
	for _, name := range reasonNames {
		all = append(all, metric.Series{Desc: droppedSamples, Values: []string{a.endpoint, name}, Start: start})
	}
	return all
}

// Close does nothing.
func (h *Health) Close() error { return nil }
