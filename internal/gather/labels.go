// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"slices"

	"rezolus/internal/metric"
)

// label is what an endpoint's series have.
type label struct{ key, value string }

// exported stands before the key of a series' own label where the endpoint has
// one of that name, as Prometheus has it with honor_labels off.
const exported = "exported_"

// renamed is a schema, and what it became.
type renamed struct{ from, to *metric.Schema }

// rename is the schema with the endpoint's labels, and its name before the
// source's.
func (e *end) rename(s *metric.Schema) (*metric.Schema, error) {
	if known := e.schemas[s.Source]; known.from == s {
		return known.to, nil
	}
	descs := map[*metric.Desc]*layout{}
	series := make([]metric.Series, len(s.Series))
	for i := range s.Series {
		from := &s.Series[i]
		l := descs[from.Desc]
		if l == nil {
			l = e.layout(from.Desc)
			descs[from.Desc] = l
		}
		values := make([]string, len(l.from))
		for k, at := range l.from {
			if at >= 0 {
				values[k] = from.Values[at]
			} else {
				values[k] = e.labels[-at-1].value
			}
		}
		series[i] = metric.Series{Desc: l.desc, Values: values, Start: from.Start}
	}
	to, err := metric.NewSchema(e.prefix+s.Source, series)
	if err != nil {
		return nil, err
	}
	e.schemas[s.Source] = renamed{s, to}
	return to, nil
}

// layout is a description with the endpoint's labels, and where the values of
// its keys come from: the series' own from 0 on, the endpoint's from -1 down.
type layout struct {
	desc *metric.Desc
	from []int
}

func (e *end) layout(d *metric.Desc) *layout {
	type place struct {
		key string
		at  int
	}
	var all []place
	for i, key := range d.Keys {
		if slices.ContainsFunc(e.labels, func(l label) bool { return l.key == key }) {
			if e.scrapes && key == "endpoint" { // is the same one
				continue
			}
			for key = exported + key; slices.Contains(d.Keys, key); key = exported + key {
			}
		}
		all = append(all, place{key, i})
	}
	for i, l := range e.labels {
		all = append(all, place{l.key, -i - 1})
	}
	slices.SortFunc(all, func(a, b place) int {
		if a.key < b.key {
			return -1
		}
		return 1
	})
	to := *d
	to.Keys = make([]string, len(all))
	l := &layout{desc: &to, from: make([]int, len(all))}
	for i, p := range all {
		to.Keys[i], l.from[i] = p.key, p.at
	}
	return l
}
