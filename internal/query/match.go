// SPDX-License-Identifier: Apache-2.0

package query

import (
	"github.com/prometheus/prometheus/promql/parser"

	"rezolus/internal/metric"
)

// Selector makes a test of series from a selector of PromQL, such as
// cpu_usage{id=~"[01]"} or {sampler="x"}. The error is a *SyntaxError.
func Selector(text string) (func(*metric.Series) bool, error) {
	ms, err := parser.NewParser(dialect).ParseMetricSelector(text)
	if err != nil {
		return nil, syntaxError(err, text)
	}
	return func(s *metric.Series) bool { return matches(s, ms) }, nil
}
