// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"rezolus/internal/metric"
)

// finish ends a scrape that was read to its end. Series that were not in it
// are gone.
func (t *table) finish() error {
	defer func() { t.was = t.began }()
	for _, s := range t.laid {
		if s.taken == t.scrape {
			t.commit(s)
		} else {
			t.fresh = true
		}
	}
	for _, s := range t.added {
		t.commit(s)
	}
	if len(t.written) > 2*len(t.known)+64 { // each scrape has its labels in another order
		clear(t.written)
	}
	if len(t.added) > 0 || t.fresh || t.schema == nil {
		return t.lay()
	}
	return nil
}

// commit makes the value of the scrape that of the series.
func (t *table) commit(s *series) {
	f := s.family
	switch f.kind {
	case counter:
		if !s.next.exact && !f.float {
			f.float, f.desc, t.fresh = true, nil, true
		}
		t.count(s, s.laid && s.next.below(s.last))
	case native, nativeGauge:
		if !f.hold(s.next.native, t) {
			t.drops[badHistogram]++
			s.taken, t.fresh = 0, true
			break
		}
		if f.kind == native {
			t.count(s, s.laid && s.next.native.below(s.last.native))
		}
	}
	s.last, s.spare = s.next, s.last.native
}

// count finds when a series began to count. What the endpoint says is believed
// if it is news, and later than the last scrape: its clock is another, and some
// reckon the moment anew each time.
func (t *table) count(s *series, fell bool) {
	created := min(s.begun, t.began)
	switch {
	case !s.laid:
		s.start = created
	case s.begun != s.said && created > t.was && created > s.start:
		s.start, t.fresh = created, true
	case fell:
		s.start, t.fresh = t.began, true
	}
	s.said = s.begun
}

func (r reading) below(o reading) bool {
	if r.exact && o.exact {
		return r.whole < o.whole
	}
	return r.float < o.float
}

// abandon forgets a scrape that failed.
func (t *table) abandon() { t.forget(func(s *series) bool { return !s.laid }) }

func (t *table) forget(gone func(*series) bool) {
	for id, s := range t.known {
		if gone(s) {
			delete(t.known, id)
		}
	}
	for key, s := range t.written {
		if gone(s) {
			delete(t.written, key)
		}
	}
}

// lay makes the schema of what was in this scrape.
func (t *table) lay() error {
	t.forget(func(s *series) bool { return s.taken != t.scrape })
	clear(t.laid)
	t.laid = t.laid[:0]
	for _, s := range t.known {
		t.laid = append(t.laid, s)
	}
	slices.SortFunc(t.laid, compare)
	t.bound()
	all := make([]metric.Series, len(t.laid))
	for i, s := range t.laid {
		if s.family.desc == nil {
			s.family.desc = s.family.describe()
		}
		s.family.used, s.laid = t.scrape, true
		all[i] = metric.Series{Desc: s.family.desc, Values: t.values(s), Start: s.start}
	}
	for name, f := range t.families {
		if f.used != t.scrape {
			delete(t.families, name)
		}
	}
	schema, err := metric.NewSchema(t.source, all)
	if err != nil {
		return fmt.Errorf("endpoint %s: %w", t.endpoint, err)
	}
	if t.fresh = false; t.schema == nil || t.schema.Hash != schema.Hash {
		t.schema = schema
	}
	return nil
}

// bound drops native histograms that a frame has no room for.
func (t *table) bound() {
	words := 0
	t.laid = slices.DeleteFunc(t.laid, func(s *series) bool {
		n := 1
		if s.family.kind.native() {
			n = len(s.family.slots)
		}
		if words+n > maxWords {
			t.drops[overBound]++
			s.taken, s.laid = 0, false
			return true
		}
		words += n
		return false
	})
}

// compare orders series by name, then labels.
func compare(a, b *series) int {
	if a.family != b.family {
		return strings.Compare(a.family.name, b.family.name)
	}
	return slices.CompareFunc(a.labels, b.labels, func(a, b pair) int {
		if c := strings.Compare(a.key, b.key); c != 0 {
			return c
		}
		return strings.Compare(a.value, b.value)
	})
}

// values are the label values in the order of the metric's keys, empty where
// the series does not have that label.
func (t *table) values(s *series) []string {
	keys := s.family.keys
	all := make([]string, len(keys))
	next := s.labels
	for i, key := range keys {
		if key == endpointKey {
			all[i] = t.endpoint
		} else if len(next) > 0 && next[0].key == key {
			all[i], next = next[0].value, next[1:]
		}
	}
	return all
}

func (f *family) describe() *metric.Desc {
	d := &metric.Desc{Name: f.name, Help: f.help, Unit: unitOf(f.name), Kind: metric.Gauge, Float: true, Keys: f.keys, Sampler: samplerName}
	if f.kind == counter && !f.float {
		d.Kind, d.Float = metric.Counter, false
	}
	if f.unit != metric.None {
		d.Unit = f.unit
	}
	switch f.kind {
	case native:
		d.Kind, d.Float, d.Slots = metric.Native, f.float, f.slots
	case nativeGauge:
		d.Kind, d.Float, d.Slots = metric.NativeGauge, f.float, f.slots
	}
	if d.Help == "" {
		d.Help = "scraped from an endpoint"
	}
	if f.kind == counter && f.float {
		d.Help += " (a counter with fractions, kept as a float)"
	}
	return d
}

// units are told from the end of a name, as Prometheus's naming has it.
var units = []string{"nanoseconds", "seconds", "bytes", "celsius", "joules", "hertz", "watts", "volts", "amperes", "percent"}

func unitOf(name string) metric.Unit {
	if strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, "_count") {
		return metric.None // they count observations
	}
	name = strings.TrimSuffix(strings.TrimSuffix(name, "_total"), "_sum")
	for _, u := range units {
		if strings.HasSuffix(name, "_"+u) {
			return metric.Unit(u)
		}
	}
	return metric.None
}

// write puts the values of the last scrape into a frame.
func (t *table) write(f *metric.Frame) {
	f.Schema = t.schema
	f.Resize(t.schema.Words)
	for i, s := range t.laid {
		switch e := &t.schema.Series[i]; {
		case e.Desc.Kind.Native():
			s.last.native.write(f.Values[e.Off:e.Off+len(e.Desc.Slots)], e.Desc)
		case e.Desc.Float:
			f.Values[e.Off] = math.Float64bits(s.last.float)
		default:
			f.Values[e.Off] = s.last.whole
		}
	}
}
