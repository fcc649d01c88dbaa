// SPDX-License-Identifier: Apache-2.0

package external

import (
	"math"
	"slices"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// table is all series that clients pushed and that did not end since. The
// source's lock guards it.
type table struct {
	options  *Options
	families map[string]*family
	series   map[string]*series // by key
	accounts map[process]*account
	users    []*userLines
	dropped  [reasons]uint64
	words    int
	changed  bool   // the membership is not the one that is published
	key      []byte // scratch
}

// family is a metric: what its series share.
type family struct {
	name   string
	kind   metric.Kind
	keys   []string // of all its series together and the source's, sorted
	desc   *metric.Desc
	series int
}

// series is one line of a metric. What is set when it is made never changes,
// but for its words and its start.
type series struct {
	key    string
	family *family
	keys   []string // sorted
	values []string
	owner  *account
	start  int64 // Unix nanoseconds; 0: not known
	seen   int64 // mono of the last update
	// words are what is said of it now, shown where it is published. They are
	// the same memory unless it is not published, or not with this start.
	words, shown []uint64
}

// account is what one process may do, over all its connections.
type account struct {
	process
	user        *userLines
	connections int
	series      int
	tokens      float64 // lines it may send now
	refilled    int64   // mono
}

func newTable(o *Options) table {
	return table{options: o, families: map[string]*family{}, series: map[string]*series{}, accounts: map[process]*account{}}
}

// open is the account of a process that connects.
func (t *table) open(p process, now int64) *account {
	a := t.accounts[p]
	if a == nil {
		a = &account{process: p, user: t.userOf(p.uid), tokens: float64(t.options.LinesPerSecond), refilled: now}
		t.accounts[p] = a
	}
	a.connections++
	return a
}

// release forgets an account that nothing is on any more.
func (t *table) release(a *account) {
	if a.connections == 0 && a.series == 0 {
		delete(t.accounts, a.process)
	}
}

// allow takes a line off what the account may send: LinesPerSecond, and as
// many at once after a second of silence.
func (t *table) allow(a *account, now int64) bool {
	rate := float64(t.options.LinesPerSecond)
	if now > a.refilled { // another connection may have asked later, and come first
		a.tokens = min(rate, a.tokens+rate*float64(now-a.refilled)/1e9)
		a.refilled = now
	}
	if a.tokens < 1 {
		return false
	}
	a.tokens--
	return true
}

// apply does what a line says. mono and wall are now.
func (t *table) apply(a *account, l *line, mono, wall int64) error {
	t.key = appendKey(t.key[:0], l)
	s := t.series[string(t.key)]
	if s == nil {
		var err error
		if s, err = t.create(a, l, wall); err != nil {
			return err
		}
	} else if s.family.kind != l.verb.kind() {
		return refuse(otherKind, "metric %.40s is a %s", s.family.name, s.family.kind)
	}
	if err := t.update(s, l, wall); err != nil {
		return err
	}
	s.seen = mono
	a.user.lines++
	return nil
}

// kind is the kind of metric that a verb is for.
func (v verb) kind() metric.Kind {
	switch v {
	case counterSet, counterAdd:
		return metric.Counter
	case gaugeSet:
		return metric.Gauge
	}
	return metric.Histogram
}

// appendKey appends what tells a series from others. 0xff is in no UTF-8.
func appendKey(b []byte, l *line) []byte {
	b = append(b, l.name...)
	for _, p := range l.labels {
		b = append(append(b, 0xff), p.key...)
		b = append(append(b, 0xff), p.value...)
	}
	return b
}

// create adds a series, if it may be there.
func (t *table) create(a *account, l *line, wall int64) (*series, error) {
	f, o := t.families[string(l.name)], t.options
	kind := l.verb.kind()
	size := 1
	if kind == metric.Histogram {
		size = power.Buckets()
	}
	switch {
	case ours(string(l.name)) || o.Reserved(string(l.name)):
		return nil, refuse(badName, "name %s is a built-in metric's; put your program's name before it", l.name)
	case f != nil && f.kind != kind:
		return nil, refuse(otherKind, "metric %s is a %s", l.name, f.kind)
	case a.series >= o.SeriesPerClient:
		return nil, refuse(clientSeries, "this process has %d series, as many as it may; they end %v after their last line", a.series, o.TTL)
	case len(t.series) >= o.MaxSeries:
		return nil, refuse(totalSeries, "there are %d series, as many as there may be; they end %v after their last line", len(t.series), o.TTL)
	case t.words+size > o.MaxWords:
		return nil, refuse(totalWords, "there is no memory left for a %s; series end %v after their last line", kind, o.TTL)
	}
	if f == nil {
		f = &family{name: string(l.name), kind: kind, keys: []string{sourceKey}}
	}
	s := &series{key: string(t.key), family: f, owner: a, words: make([]uint64, size)}
	more := f.keys
	for _, p := range l.labels {
		key := string(p.key)
		s.keys, s.values = append(s.keys, key), append(s.values, string(p.value))
		if i, ok := slices.BinarySearch(more, key); !ok {
			more = slices.Insert(slices.Clone(more), i, key)
		}
	}
	if len(more) > maxLabels+1 { // with the source's
		return nil, refuse(badLabels, "metric %s would have more than %d different labels", l.name, maxLabels)
	}
	if len(more) != len(f.keys) {
		f.keys, f.desc = more, nil
	}
	if l.verb == counterAdd || l.verb == histObserve {
		s.start = wall // it counts from zero now, which only these know
	}
	f.series++
	t.families[f.name], t.series[s.key] = f, s
	t.words += size
	a.series++
	t.changed = true
	return s, nil
}

// remove ends a series.
func (t *table) remove(s *series) {
	delete(t.series, s.key)
	t.words -= len(s.words)
	if s.family.series--; s.family.series == 0 {
		delete(t.families, s.family.name)
	}
	s.owner.series--
	t.release(s.owner)
	t.changed = true
}

// update sets or adds to the words of a series.
func (t *table) update(s *series, l *line, wall int64) error {
	switch l.verb {
	case counterSet:
		if l.count < s.words[0] {
			t.restart(s, wall)
		}
		s.words[0] = l.count
	case counterAdd:
		if l.count > math.MaxUint64-s.words[0] {
			return refuse(badNumber, "counter %s would be above 2^64", l.name)
		}
		s.words[0] += l.count
	case gaugeSet:
		s.words[0] = math.Float64bits(l.value)
	case histObserve:
		for _, v := range l.words {
			s.words[power.Index(v)]++
		}
	case histSet:
		for i, n := range l.words {
			if n < s.words[i] {
				t.restart(s, wall)
				break
			}
		}
		copy(s.words, l.words)
	}
	return nil
}

// restart lets a series count from zero at wall. What is published stays as it
// is until it can be published with that start.
func (t *table) restart(s *series, wall int64) {
	s.words, s.start = make([]uint64, len(s.words)), wall
	t.changed = true
}

// hist.Default is what the histograms of this package have, which the length
// of parser.coarse says too.
var _ = [1]struct{}{}[hist.Default-3]
