// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"

	"rezolus/internal/metric"
)

// The requests about what there is, rather than its values.

func constant(data string) func(*http.Request) (answer, *fault) {
	return func(*http.Request) (answer, *fault) { return answer{data: []byte(data)}, nil }
}

func (a *api) buildInfo(*http.Request) (answer, *fault) {
	data, err := json.Marshal(a.info)
	if err != nil {
		return answer{}, &fault{internal, err}
	}
	return answer{data: data}, nil
}

func (a *api) formatQuery(r *http.Request) (answer, *fault) {
	expr, err := a.engine.parser.ParseExpr(r.FormValue("query"))
	if err != nil {
		return answer{}, badParam("query", err)
	}
	return answer{data: appendString(nil, expr.Pretty(0))}, nil
}

func (a *api) labels(r *http.Request) (answer, *fault) {
	return a.union(r, func(q querier, ms []*labels.Matcher) ([]string, error) {
		names, _, err := q.LabelNames(r.Context(), nil, ms...)
		return names, err
	})
}

func (a *api) labelValues(r *http.Request) (answer, *fault) {
	name := r.PathValue("name")
	if name == "" || !utf8.ValidString(name) {
		return answer{}, &fault{badData, fmt.Errorf("invalid label name: %q", name)}
	}
	return a.union(r, func(q querier, ms []*labels.Matcher) ([]string, error) {
		values, _, err := q.LabelValues(r.Context(), name, nil, ms...)
		return values, err
	})
}

// union answers with the sorted union of what get finds for each of the
// request's selectors, or for all series if there are none.
func (a *api) union(r *http.Request, get func(querier, []*labels.Matcher) ([]string, error)) (answer, *fault) {
	ask, bad := a.about(r)
	if bad != nil {
		return answer{}, bad
	}
	sets, err := a.matchers(r.Form["match[]"])
	if err != nil {
		return answer{}, &fault{badData, err}
	}
	if len(sets) == 0 {
		sets = [][]*labels.Matcher{nil}
	}
	var all []string
	for _, ms := range sets {
		some, err := get(ask.querier, ms)
		if err != nil {
			return answer{}, &fault{execution, err}
		}
		all = append(all, some...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	var out answer
	if ask.limit > 0 && len(all) > ask.limit {
		all, out.warnings = all[:ask.limit], []string{truncated}
	}
	out.data = appendStrings(nil, all)
	return out, nil
}

func (a *api) series(r *http.Request) (answer, *fault) {
	if len(r.Form["match[]"]) == 0 {
		return answer{}, &fault{badData, errors.New("no match[] parameter provided")}
	}
	ask, bad := a.about(r)
	if bad != nil {
		return answer{}, bad
	}
	sets, err := a.matchers(r.Form["match[]"])
	if err != nil {
		return answer{}, badParam("match[]", err)
	}
	all, err := ask.allLabels(r.Context(), sets)
	if err != nil {
		return answer{}, queryFault(err)
	}
	var out answer
	if ask.limit > 0 && len(all) > ask.limit {
		all, out.warnings = all[:ask.limit], []string{truncated}
	}
	out.data = append(out.data, '[')
	for i, ls := range all {
		if i > 0 {
			out.data = append(out.data, ',')
		}
		out.data = appendLabels(out.data, appendLabelsOf(nil, ls))
	}
	out.data = append(out.data, ']')
	return out, nil
}

// allLabels are the label sets of the series that match one of the sets of
// matchers, sorted.
func (q querier) allLabels(ctx context.Context, sets [][]*labels.Matcher) ([]labels.Labels, error) {
	from, to, ok := span(q.r, q.mint, q.maxt)
	if !ok {
		return nil, nil
	}
	var all []labels.Labels
	b := labels.NewScratchBuilder(8)
	err := q.r.Series(from, to, func(s *metric.Series) bool {
		if slices.ContainsFunc(sets, func(ms []*labels.Matcher) bool { return matches(s, ms) }) {
			all = append(all, makeLabels(&b, s.Desc, s.Values))
		}
		return ctx.Err() == nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, labels.Compare)
	return slices.CompactFunc(all, labels.Equal), ctx.Err()
}

// described is a metric's entry in /metadata.
type described struct {
	Type string `json:"type"`
	Unit string `json:"unit"`
	Help string `json:"help"`
}

func (a *api) metadata(r *http.Request) (answer, *fault) {
	limits := map[string]int{"limit": -1, "limit_per_metric": -1}
	for name := range limits {
		if s := r.FormValue(name); s != "" {
			n, err := strconv.Atoi(s)
			if err != nil {
				return answer{}, &fault{badData, fmt.Errorf("%s must be a number", name)}
			}
			limits[name] = n
		}
	}
	all, err := a.describe(r.FormValue("metric"), limits["limit_per_metric"])
	if err != nil {
		return answer{}, &fault{internal, err}
	}
	names := slices.Sorted(maps.Keys(all))
	if n := limits["limit"]; n >= 0 && n < len(names) {
		for _, name := range names[n:] {
			delete(all, name)
		}
	}
	data, err := json.Marshal(all) // sorts the names
	if err != nil {
		return answer{}, &fault{internal, err}
	}
	return answer{data: data}, nil
}

// describe is what the metrics are, or the one that is asked for, each in at
// most limit ways if that is above zero: a recording may hold several.
func (a *api) describe(name string, limit int) (map[string][]described, error) {
	all := map[string][]described{}
	from, to, some := span(a.reader, minTime.UnixMilli(), maxTime.UnixMilli())
	if !some {
		return all, nil
	}
	var last *metric.Desc // series of one metric come together
	err := a.reader.Series(from, to, func(s *metric.Series) bool {
		d := s.Desc
		if d == last || name != "" && d.Name != name {
			return true
		}
		last = d
		e := described{d.Kind.String(), string(d.Unit), d.Help}
		if known := all[d.Name]; !slices.Contains(known, e) && (limit <= 0 || len(known) < limit) {
			all[d.Name] = append(known, e)
		}
		return true
	})
	return all, err
}
