// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"cmp"
	"slices"
	"strconv"

	"rezolus/internal/metric"
)

// fact keeps one more entry of a kind of which there are already n, unless
// there are too many.
func (w *Writer) fact(n int, keep func()) {
	if n >= maxFacts {
		w.dropped++
		return
	}
	keep()
}

// note keeps what a tick is beyond its values, where it is not what follows
// from the tick before.
func (w *Writer) note(s *metric.Snapshot) {
	f, last := &w.facts, &w.last
	if s.Run != nil && (last.run == nil || s.Run != last.run && *s.Run != *last.run) {
		r := s.Run
		f.Runs = append(f.Runs, runFacts{w.total, r.ID[:], r.Boot[:], r.Started, r.Host, r.Kernel, r.Arch, r.Version})
		last.run = r
	}
	if w.total == 0 || s.Seq != last.seq+1 || s.Missed != 0 {
		w.fact(len(f.Gaps), func() { f.Gaps = append(f.Gaps, gapFacts{w.total, s.Seq, s.Missed}) })
	}
	if s.Interval != last.interval {
		w.fact(len(f.Intervals), func() { f.Intervals = append(f.Intervals, [2]int64{w.total, s.Interval}) })
	}
	if clock := s.Mono - s.Wall; clock != last.clock {
		w.fact(len(f.Clock), func() { f.Clock = append(f.Clock, [2]int64{w.total, clock}) })
		last.clock = clock
	}
	last.seq, last.interval = s.Seq, s.Interval
	if w.interval == 0 {
		w.interval = s.Interval
	}
	if w.total == 0 {
		w.first = s.Wall
	}
	w.final = s.Wall
	if w.rows == 0 {
		w.min, w.max = s.Wall, s.Wall
	}
	w.min, w.max = min(w.min, s.Wall), max(w.max, s.Wall)
}

// started keeps from when on a column counts, from the present row on.
func (w *Writer) started(column int, start int64) {
	all := w.facts.Starts
	if last := len(all) - 1; last >= 0 && all[last].Row == w.total && all[last].Start == start {
		all[last].Columns.add(column)
		return
	}
	w.facts.Starts = append(all, startFacts{w.total, start, spans{{column, column + 1}}})
}

// metadata is the metadata of the file.
func (w *Writer) metadata() map[string]string {
	for _, t := range w.tables {
		w.facts.Sources = append(w.facts.Sources, sourceFacts{t.name, t.spans})
	}
	m := map[string]string{
		metaSource:       "rezolus",
		metaInterval:     strconv.FormatInt(max(1, w.interval/1e6), 10),
		metaDescriptions: toJSON(w.help),
		factsKey:         toJSON(&w.facts),
		arrowKey:         encodeArrow(w.fields()),
	}
	if w.o.Form == Tidy {
		w.bounds(m)
	}
	if w.last.run != nil {
		m[metaVersion], m[metaNode] = w.last.run.Version, w.last.run.Host
	}
	if len(w.events) > 0 {
		slices.SortStableFunc(w.events, func(a, b eventJSON) int { return cmp.Compare(a.Time, b.Time) })
		m[metaEvents] = toJSON(eventsJSON{w.events})
	}
	for k, v := range w.o.Metadata {
		if k != arrowKey && k != factsKey {
			m[k] = v
		}
	}
	if w.total > 0 {
		m[metaPerSource] = w.perSource(m)
	}
	return m
}

// bounds adds the largest value that each bucket counts, for each power of
// which there are histograms.
func (w *Writer) bounds(m map[string]string) {
	for _, c := range w.columns {
		if c.typ != histogram || c.desc.Kind != metric.Histogram || m[metaBounds+c.meta[keyPower]] != "" {
			continue
		}
		all := make([]uint64, c.desc.Words())
		for i := range all {
			_, all[i] = c.desc.Power.Bounds(i)
		}
		m[metaBounds+c.meta[keyPower]] = toJSON(all)
	}
}

// perSource is what is said of the source, unless whoever merged several into
// one file said it.
func (w *Writer) perSource(m map[string]string) string {
	if given, ok := m[metaPerSource]; ok {
		return given
	}
	one := map[string]any{"first_sample_ns": w.first, "last_sample_ns": w.final}
	for _, k := range []string{metaVersion, metaNode, metaInstance} {
		if m[k] != "" {
			one[k] = m[k]
		}
	}
	id := cmp.Or(m[metaNode], m[metaInstance], "0")
	return toJSON(map[string]any{m[metaSource]: map[string]any{id: one}})
}

func (w *Writer) fields() []arrowField {
	fields := make([]arrowField, len(w.columns))
	for i, c := range w.columns {
		fields[i] = arrowField{name: c.name, required: c.required, typ: c.typ, meta: c.meta}
	}
	return fields
}
