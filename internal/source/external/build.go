// SPDX-License-Identifier: Apache-2.0

package external

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"rezolus/internal/metric"
)

// rebuild makes a layout each time Read asks for one. Making it takes
// milliseconds where there are thousands of series, which no tick is to wait
// for.
func (s *Source) rebuild() {
	for {
		select {
		case <-s.kick:
		case <-s.stop:
			return
		}
		began := s.mono()
		_ = s.build() // of series that were checked, it does not fail
		// A client whose series come and go at every line costs the agent a
		// twentieth of a CPU at most, and a recording two schemas a second.
		if !s.pause(max(20*time.Duration(s.mono()-began), settle)) {
			return
		}
	}
}

// settle is how long a membership stays published at least.
const settle = 500 * time.Millisecond

// member is a series as it was when a layout was begun.
type member struct {
	series *series
	desc   *metric.Desc
	start  int64
}

// build ends the series past their TTL and publishes the membership. Only one
// build runs at a time.
func (s *Source) build() error {
	if members, users, changed := s.begin(); changed {
		return s.publish(members, users)
	}
	return nil
}

// begin is what is to be published, if that is not what is.
func (s *Source) begin() (members []member, users []*userLines, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	if !s.table.changed && s.current.schema != nil {
		return nil, nil, false
	}
	s.table.changed = false
	return s.table.members(), slices.Clone(s.table.users), true
}

// publish lays the members out. Only the last step holds the lock.
func (s *Source) publish(members []member, users []*userLines) error {
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.series.key, b.series.key) })
	all := selfSeries(users, s.born)
	own := len(all)
	for _, m := range members {
		all = append(all, metric.Series{Desc: m.desc, Values: m.values(), Start: m.start})
	}
	schema, err := metric.NewSchema(samplerName, all)
	if err != nil {
		return fmt.Errorf("publish external metrics: %w", err)
	}
	flat := make([]uint64, schema.Words)

	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range members {
		at := flat[schema.Series[own+i].Off:][:len(m.series.words):len(m.series.words)]
		if m.start == m.series.start {
			copy(at, m.series.words)
			m.series.words = at
		} else {
			copy(at, m.series.shown) // it began anew meanwhile, which the next layout tells
		}
		m.series.shown = at
	}
	s.current = layout{schema, flat, len(users)}
	return nil
}

// sweep ends what was not updated within the TTL. It looks often enough that
// none lives longer than an eighth beyond it.
func (s *Source) sweep() {
	now := s.mono()
	ttl := int64(s.options.TTL)
	if now < s.sweepAt {
		return
	}
	s.sweepAt = now + ttl/8
	for _, e := range s.table.series {
		if now-e.seen > ttl {
			s.table.remove(e)
		}
	}
}

// members are all series with what they are described by.
func (t *table) members() []member {
	all := make([]member, 0, len(t.series))
	for _, s := range t.series {
		f := s.family
		if f.desc == nil {
			f.desc = f.describe()
		}
		all = append(all, member{s, f.desc, s.start})
	}
	return all
}

func (f *family) describe() *metric.Desc {
	d := &metric.Desc{Name: f.name, Help: "pushed by another program", Unit: unitOf(f.name), Kind: f.kind,
		Float: f.kind == metric.Gauge, Keys: f.keys, Sampler: samplerName}
	if f.kind == metric.Histogram {
		d.Power = power
	}
	return d
}

// units are told from the end of a name, as Prometheus's naming has it.
var units = []string{"nanoseconds", "seconds", "bytes", "celsius", "joules", "hertz", "watts", "volts", "amperes", "percent"}

func unitOf(name string) metric.Unit {
	name = strings.TrimSuffix(name, "_total")
	for _, u := range units {
		if strings.HasSuffix(name, "_"+u) {
			return metric.Unit(u)
		}
	}
	return metric.None
}

// values are the label values in the order of the metric's keys, empty where
// the series does not have that label.
func (m member) values() []string {
	all := make([]string, len(m.desc.Keys))
	for i, key := range m.desc.Keys {
		if at, ok := slices.BinarySearch(m.series.keys, key); ok {
			all[i] = m.series.values[at]
		} else if key == sourceKey {
			all[i] = samplerName
		}
	}
	return all
}
