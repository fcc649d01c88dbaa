// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"math"
	"slices"
	"strings"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// kind is what a family was declared as.
type kind uint8

const (
	untyped kind = iota // a gauge as far as we know
	counter
	gauge
	native      // a native histogram
	nativeGauge // one whose counts fall, too
)

// reading is one value as it was written: a whole number of 64 bits where it
// is one, and a float always.
type reading struct {
	float float64
	whole uint64
	exact bool // whole is the value
	// native is the value of a native histogram, which is nothing else.
	native *nativeHistogram
}

// number is the reading of a float.
func number(v float64) reading {
	r := reading{float: v}
	if v >= 0 && v < 1<<63 && v == math.Trunc(v) {
		r.whole, r.exact = uint64(v), true
	}
	return r
}

// pair is a label.
type pair struct{ key, value string }

// family is a metric of an endpoint.
type family struct {
	name  string
	kind  kind
	help  string
	unit  metric.Unit // as declared; empty: the name tells
	keys  []string    // of all its series and endpoint, sorted
	float bool        // a counter with fractions: kept as a float gauge, for good; a native histogram's counts are floats
	slots []hist.Slot // of a native histogram: what some series of it has needed
	desc  *metric.Desc
	used  uint64 // the scrape it was laid out for last
	seen  uint64 // and the one that a value was taken in
	gone  bool   // another family has its name
}

// series is one line of what an endpoint says.
type series struct {
	family *family
	labels []pair           // sorted
	start  int64            // when it began to count; 0: not known
	last   reading          // of the last scrape that was whole
	next   reading          // of the scrape under way
	begun  int64            // start as the endpoint says it, in that scrape; 0: it does not
	said   int64            // begun of the last scrape that was whole
	taken  uint64           // the scrape it was in last
	laid   bool             // it is in the layout
	spare  *nativeHistogram // memory of the value before the last
}

// table is the membership of an endpoint, and the values of its last scrape.
type table struct {
	endpoint string
	prefix   string
	max      int
	reserved func(name string) bool

	families map[string]*family
	known    map[string]*series // by name and labels
	written  map[string]*series // by name and labels as the endpoint writes them
	slow     bool               // written is not to be trusted: something is declared anew
	scrape   uint64             // number of the present one
	began    int64              // wall: when it began
	was      int64              // and when the last good one did
	added    []*series          // in it, that are not laid out
	taken    int                // series in it
	drops    [reasons]uint64    // in it
	fresh    bool               // the layout is not what it should be

	created int64            // of the sample that is taken next: series.begun
	buckets *nativeHistogram // and what it holds, if it is a native histogram

	laid   []*series // in the order of the schema
	schema *metric.Schema
	source string
}

// reason is why a sample is not in a frame.
type reason int

const (
	overBound    reason = iota // above MaxSeries
	badName                    // nothing of it is left in our names
	badLabel                   // no label of ours, or too many or too long
	twice                      // a series again, maybe once two names are one of ours
	badHistogram               // a native histogram that contradicts itself, or is too fine
	reasons
)

var reasonNames = [reasons]string{"series", "name", "label", "duplicate", "histogram"}

const (
	endpointKey = "endpoint"
	maxLabels   = 64
	maxValue    = 4096    // bytes of a label's value
	maxWords    = 1 << 20 // of a frame
)

func newTable(source string, e Endpoint, reserved func(string) bool) *table {
	if reserved == nil {
		reserved = func(string) bool { return false }
	}
	return &table{endpoint: e.Name, prefix: e.Prefix, max: e.MaxSeries, reserved: reserved, source: source,
		families: map[string]*family{}, known: map[string]*series{}, written: map[string]*series{}}
}

// begin begins a scrape.
func (t *table) begin(wall int64) {
	t.scrape++
	t.began, t.taken, t.slow, t.added = wall, 0, false, t.added[:0]
	t.drops = [reasons]uint64{}
}

// quick takes the value of a series that was there before, written the same
// way. It reports whether it was.
func (t *table) quick(key []byte, r reading) bool {
	s := t.written[string(key)]
	if s == nil || t.slow || s.family.gone {
		return false
	}
	t.set(s, r)
	return true
}

// declared is what is known of a metric before its first sample.
type declared struct {
	kind kind
	help string
	unit metric.Unit
}

// add takes the value of any series. The labels may be in any order; they are
// not kept.
func (t *table) add(key []byte, name string, d declared, labels []pair, r reading) {
	if name = t.rename(name); name == "" {
		t.drops[badName]++
		return
	}
	labels, ok := ours(labels)
	if !ok {
		t.drops[badLabel]++
		return
	}
	if f := t.families[name]; f != nil && f.kind.native() != d.kind.native() {
		if f.seen == t.scrape {
			t.drops[twice]++
			return
		}
		f.gone = true
		delete(t.families, name)
	}
	id := identity(name, labels)
	s := t.known[id]
	if s != nil && s.family.gone {
		s = nil
	}
	if s == nil {
		if t.taken >= t.max {
			t.drops[overBound]++
			return
		}
		if s = t.create(name, d, labels); s == nil {
			t.drops[badLabel]++
			return
		}
		t.known[id] = s
	} else if f := s.family; f.kind != d.kind || f.help != d.help || f.unit != d.unit {
		f.kind, f.help, f.unit, f.desc, t.fresh = d.kind, d.help, d.unit, nil, true
	}
	t.written[string(key)] = s
	t.set(s, r)
}

// rename is the name a metric has with us. One that a built-in metric has
// would mix the endpoint's values with this machine's in every query.
func (t *table) rename(name string) string {
	if name = mapName(name); name == "" || len(name) > 256 {
		return ""
	}
	name = t.prefix + name
	if t.reserved(name) {
		name = "scraped_" + name
	}
	return name
}

// ours are labels as we have them: sorted, none empty, none of Prometheus's
// own, and the endpoint's label endpoint by another name (as Prometheus does
// with honor_labels off).
func ours(labels []pair) ([]pair, bool) {
	all := make([]pair, 0, len(labels))
	for _, l := range labels {
		if l.value == "" {
			continue
		}
		if l.key == endpointKey {
			l.key = "exported_" + endpointKey
		}
		if !validKey(l.key) || len(l.value) > maxValue {
			return nil, false
		}
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b pair) int { return strings.Compare(a.key, b.key) })
	for i := 1; i < len(all); i++ {
		if all[i].key == all[i-1].key {
			return nil, false
		}
	}
	return all, len(all) <= maxLabels
}

func validKey(key string) bool {
	for i := range len(key) {
		c := key[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9' || i == 0) && c != '_' {
			return false
		}
	}
	return key != "" && len(key) <= 256 && !strings.HasPrefix(key, "__")
}

// identity tells a series from others. 0xff is in no UTF-8.
func identity(name string, labels []pair) string {
	var b strings.Builder
	b.WriteString(name)
	for _, l := range labels {
		b.WriteString("\xff" + l.key + "\xff" + l.value)
	}
	return b.String()
}

// create adds a series, or nothing if its metric would have too many labels.
func (t *table) create(name string, d declared, labels []pair) *series {
	f := t.families[name]
	if f == nil {
		f = &family{name: name, kind: d.kind, help: d.help, unit: d.unit, keys: []string{endpointKey}, float: d.kind == counter && inSeconds(name)}
		t.families[name] = f
	}
	keys := f.keys
	for _, l := range labels {
		if i, ok := slices.BinarySearch(keys, l.key); !ok {
			keys = slices.Insert(slices.Clone(keys), i, l.key)
		}
	}
	if len(keys) > maxLabels+1 {
		return nil
	}
	if len(keys) != len(f.keys) {
		f.keys, f.desc, t.fresh = keys, nil, true
	}
	return &series{family: f, labels: labels}
}

// inSeconds tells counters of seconds, which have fractions sooner or later.
func inSeconds(name string) bool {
	return strings.HasSuffix(name, "_seconds") || strings.HasSuffix(name, "_seconds_total")
}

// set takes a value, once a scrape.
func (t *table) set(s *series, r reading) {
	n := 1
	if t.buckets != nil { // each as if it were a series, as it is in a classic one
		n = max(1, len(t.buckets.buckets))
	}
	switch {
	case s.taken == t.scrape:
		t.drops[twice]++
	case t.taken+n > t.max:
		t.drops[overBound]++
	default:
		s.taken, s.next, s.begun, s.family.seen = t.scrape, r, t.created, t.scrape
		if t.buckets != nil {
			s.next.native, s.spare = s.spare.copy(t.buckets), nil
		}
		t.taken += n
		if !s.laid {
			t.added = append(t.added, s)
		}
	}
}
