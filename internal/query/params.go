// SPDX-License-Identifier: Apache-2.0

package query

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// The times that stand for no bound. Clients send them back to us, and with
// years of more than four digits only they can be parsed as text.
var (
	minTime = time.Unix(math.MinInt64/1000+62135596801, 0).UTC()
	maxTime = time.Unix(math.MaxInt64/1000-62135596801, 999999999).UTC()
)

// parseTime reads a time as Prometheus's API does: seconds since 1970, of
// which it keeps three decimals, or RFC 3339.
func parseTime(s string) (time.Time, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		if math.IsNaN(f) || math.Abs(f) > float64(maxTime.Unix()) {
			return time.Time{}, fmt.Errorf("cannot parse %q to a valid timestamp", s)
		}
		sec, frac := math.Modf(f)
		frac = math.Round(frac*1000) / 1000
		return time.Unix(int64(sec), int64(frac*float64(time.Second))).UTC(), nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, nil
	}
	switch s {
	case minTime.Format(time.RFC3339Nano):
		return minTime, nil
	case maxTime.Format(time.RFC3339Nano):
		return maxTime, nil
	}
	return time.Time{}, fmt.Errorf("cannot parse %q to a valid timestamp", s)
}

// parseDuration reads a duration as Prometheus's API does: seconds, or
// PromQL's 1h30m.
func parseDuration(s string) (time.Duration, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsNaN(f) {
		ns := f * float64(time.Second)
		if ns >= math.MaxInt64 || ns <= math.MinInt64 {
			return 0, fmt.Errorf("cannot parse %q to a valid duration. It overflows int64", s)
		}
		return time.Duration(ns), nil
	}
	if d, err := model.ParseDuration(s); err == nil {
		return time.Duration(d), nil
	}
	return 0, fmt.Errorf("cannot parse %q to a valid duration", s)
}

// parseLimit reads how many results are wanted; 0 is all.
func parseLimit(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err == nil && n < 0 {
		err = errors.New("limit must be non-negative")
	}
	return n, err
}

// timeParam is the time in the parameter name, or absent where there is none.
func timeParam(r *http.Request, name string, absent time.Time) (time.Time, error) {
	s := r.FormValue(name)
	if s == "" {
		return absent, nil
	}
	t, err := parseTime(s)
	if err != nil {
		err = fmt.Errorf("invalid time value for '%s': %w", name, err)
	}
	return t, err
}

// about is what the requests about series, labels and values have in common:
// a time range, and how many answers are wanted.
type about struct {
	limit int
	querier
}

func (a *api) about(r *http.Request) (about, *fault) {
	var out about
	var err error
	if out.limit, err = parseLimit(r.FormValue("limit")); err != nil {
		return out, badParam("limit", err)
	}
	start, err := timeParam(r, "start", minTime)
	if err != nil {
		return out, badParam("start", err)
	}
	end, err := timeParam(r, "end", maxTime)
	if err != nil {
		return out, badParam("end", err)
	}
	out.querier = querier{queryable{r: a.reader}, start.UnixMilli(), end.UnixMilli()}
	return out, nil
}

// matchers parses selectors. One that matches every series is refused.
func (a *api) matchers(selectors []string) ([][]*labels.Matcher, error) {
	sets, err := a.engine.parser.ParseMetricSelectors(selectors)
	if err != nil {
		return nil, err
	}
	for _, set := range sets {
		all := true
		for _, m := range set {
			all = all && m.Matches("")
		}
		if all {
			return nil, errors.New("match[] must contain at least one non-empty matcher")
		}
	}
	return sets, nil
}
