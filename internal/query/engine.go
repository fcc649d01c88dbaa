// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/prometheus/prometheus/util/stats"
)

// The limits and defaults of an engine.
const (
	// DefaultTimeout ends a query; Prometheus has the same.
	DefaultTimeout = 2 * time.Minute
	// DefaultMaxSamples is how many samples a query may hold at once: at
	// 16 bytes each, 160 MB. A histogram counts as several.
	DefaultMaxSamples = 10_000_000
	// DefaultConcurrency is how many queries are evaluated at once; others
	// wait. It lets a page's quick queries pass a few slow ones.
	DefaultConcurrency = 4
	// DefaultLookback is how old the newest sample of a series may be to
	// stand for its present value. Prometheus takes five minutes because it
	// must guess that a series ended; here the data says so, and the
	// lookback has only to span the gap between two samples. A minute
	// covers sources that are read every half minute, and does not draw a
	// line for minutes through a time when nothing was recorded.
	DefaultLookback = time.Minute
	// MaxPoints is how many steps a range query may have; Prometheus has
	// the same.
	MaxPoints = 11_000

	// subqueryStep is the resolution of a subquery that names none, [1m:].
	subqueryStep = time.Second
)

// Options are the limits of an engine. The zero value of each field stands
// for the default of that name.
type Options struct {
	Timeout     time.Duration
	MaxSamples  int
	Concurrency int
	// Lookback must be longer than the time between two samples of the
	// slowest source. A query may name its own.
	Lookback time.Duration
}

// Engine evaluates PromQL. It is safe for concurrent use.
type Engine struct {
	promql  *promql.Engine
	parser  parser.Parser
	timeout time.Duration
}

// New makes an engine. It needs no closing.
func New(o Options) *Engine {
	opts := engineOptions(o)
	return &Engine{promql.NewEngine(opts), opts.Parser, opts.Timeout}
}

func engineOptions(o Options) promql.EngineOpts {
	return promql.EngineOpts{
		Timeout:                  or(o.Timeout, DefaultTimeout),
		MaxSamples:               or(o.MaxSamples, DefaultMaxSamples),
		LookbackDelta:            or(o.Lookback, DefaultLookback),
		ActiveQueryTracker:       make(gate, or(o.Concurrency, DefaultConcurrency)),
		NoStepSubqueryIntervalFn: func(int64) int64 { return subqueryStep.Milliseconds() },
		EnableAtModifier:         true,
		EnableNegativeOffset:     true,
		EnableDelayedNameRemoval: true,
		UseStartTimestamps:       true,
		Parser:                   parser.NewParser(dialect),
	}
}

// dialect is all of PromQL, the parts that Prometheus hides behind a flag
// included: Prometheus's own scripts test all of it, and anchored ranges give
// the increase without extrapolation.
var dialect = parser.Options{
	EnableExperimentalFunctions:  true,
	ExperimentalDurationExpr:     true,
	EnableExtendedRangeSelectors: true,
	EnableBinopFillModifiers:     true,
}

func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// gate lets as many queries run at once as the channel has room for.
type gate chan struct{}

func (g gate) GetMaxConcurrent() int { return cap(g) }
func (g gate) Delete(int)            { <-g }
func (g gate) Close() error          { return nil }

func (g gate) Insert(ctx context.Context, _ string) (int, error) {
	select {
	case g <- struct{}{}:
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// settings are what a request may ask for besides the expression.
type settings struct {
	lookback time.Duration // 0: the engine's
	stats    bool
}

// Instant evaluates the expression at one time. Errors are those of Range.
func (e *Engine) Instant(ctx context.Context, r Reader, expr string, at time.Time) (*Result, error) {
	return e.instant(ctx, r, expr, at, settings{})
}

// Range evaluates the expression at start and every step after it up to end.
// Time is counted in whole milliseconds. An expression that is not PromQL
// gives a *SyntaxError, a range the engine will not do an error of
// ErrRange, too much time or too many samples one of ErrLimit.
func (e *Engine) Range(ctx context.Context, r Reader, expr string, start, end time.Time, step time.Duration) (*Result, error) {
	return e.ranged(ctx, r, expr, start, end, step, settings{})
}

func (e *Engine) instant(ctx context.Context, r Reader, expr string, at time.Time, s settings) (*Result, error) {
	from := queryable{r, map[string]bool{}}
	q, err := e.promql.NewInstantQuery(ctx, from, promql.NewPrometheusQueryOpts(false, s.lookback), expr, at)
	if err != nil {
		return nil, syntaxError(err, expr)
	}
	return finish(ctx, q, from, expr, s)
}

func (e *Engine) ranged(ctx context.Context, r Reader, expr string, start, end time.Time, step time.Duration, s settings) (*Result, error) {
	if err := checkRange(start, end, step); err != nil {
		return nil, err
	}
	from := queryable{r, map[string]bool{}}
	q, err := e.promql.NewRangeQuery(ctx, from, promql.NewPrometheusQueryOpts(false, s.lookback), expr, start, end, step)
	if err != nil {
		return nil, syntaxError(err, expr)
	}
	return finish(ctx, q, from, expr, s)
}

// finish evaluates a prepared query and takes the answer out of the engine's
// memory, which the engine then reuses.
func finish(ctx context.Context, q promql.Query, from queryable, expr string, s settings) (*Result, error) {
	defer q.Close()
	res := q.Exec(ctx)
	if res.Err != nil {
		return nil, execError(res.Err)
	}
	out := fromValue(res.Value)
	// The engine takes what is not called *_total for no counter. Our names
	// do not say what a metric is, its description does.
	maps.DeleteFunc(res.Warnings, func(_ string, err error) bool {
		return errors.Is(err, annotations.PossibleNonCounterInfo)
	})
	if len(res.Warnings) > 0 {
		out.Warnings, out.Infos = res.Warnings.AsStrings(expr, maxAnnotations, maxAnnotations)
	}
	for _, name := range slices.Sorted(maps.Keys(from.gauges)) {
		out.Infos = append(out.Infos, fmt.Sprintf("%v: metric is a gauge, not a counter: %q", annotations.PromQLInfo, name))
	}
	if s.stats {
		var err error
		if out.stats, err = json.Marshal(stats.NewQueryStats(q.Stats())); err != nil {
			return nil, fmt.Errorf("encode statistics: %w", err)
		}
	}
	return out, nil
}

// maxAnnotations is how many warnings and how many infos an answer carries.
const maxAnnotations = 10
