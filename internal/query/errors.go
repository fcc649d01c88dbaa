// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// What a query can fail of, besides its syntax and its context.
var (
	// ErrRange is a range with too many steps, or none.
	ErrRange = errors.New("range")
	// ErrLimit is a query that took too long or too much memory.
	ErrLimit = errors.New("limit")
	// ErrRead is a reader that failed.
	ErrRead = errors.New("read")
)

// SyntaxError is an expression that is not PromQL, or not of the type that
// is needed.
type SyntaxError struct {
	Query string
	// Offset is the byte of Query where the fault is, -1 when it is not at
	// one place.
	Offset int
	// Reason says what is wrong, in Prometheus's words.
	Reason string
	text   string
}

// Error is Prometheus's message: line and column, then the reason.
func (e *SyntaxError) Error() string { return e.text }

// Excerpt is the line of the query with the fault and a second line with a
// caret below it, for people to read; empty when the fault is not at one
// place.
func (e *SyntaxError) Excerpt() string {
	if e.Offset < 0 {
		return ""
	}
	start := strings.LastIndexByte(e.Query[:e.Offset], '\n') + 1
	line, _, _ := strings.Cut(e.Query[start:], "\n")
	pad := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, e.Query[start:e.Offset])
	return line + "\n" + pad + "^"
}

func syntaxError(err error, query string) error {
	switch { // it waited for its turn until its context ended
	case errors.Is(err, context.DeadlineExceeded):
		return execError(promql.ErrQueryTimeout("query queue"))
	case errors.Is(err, context.Canceled):
		return execError(promql.ErrQueryCanceled("query queue"))
	}
	out := &SyntaxError{Query: query, Offset: -1, Reason: err.Error(), text: err.Error()}
	var many parser.ParseErrors
	var one *parser.ParseErr
	if errors.As(err, &many) && len(many) > 0 {
		one = &many[0]
	} else if !errors.As(err, &one) {
		return out
	}
	out.Reason = one.Err.Error()
	if at := int(one.PositionRange.Start); at >= 0 && at <= len(query) {
		out.Offset = at
	}
	return out
}

// failure is an error of the engine with what it is of ours. Its text is the
// engine's.
type failure struct {
	error
	kind error
}

// Unwrap makes errors.Is and As find either.
func (f failure) Unwrap() []error { return []error{f.error, f.kind} }

// execError gives an error of the engine its kind. Whatever has none is the
// query's own fault, such as two series with the same labels.
func execError(err error) error {
	var timeout promql.ErrQueryTimeout
	var samples promql.ErrTooManySamples
	var canceled promql.ErrQueryCanceled
	var storage promql.ErrStorage
	switch {
	case errors.As(err, &timeout), errors.As(err, &samples):
		return failure{err, ErrLimit}
	case errors.As(err, &storage):
		return failure{err, errors.Join(ErrRead, storage.Err)} // it does not unwrap
	case errors.As(err, &canceled):
		return failure{err, context.Canceled}
	}
	return err
}

// checkRange refuses what Prometheus's API refuses, in its words.
func checkRange(start, end time.Time, step time.Duration) error {
	refuse := func(format string, args ...any) error { return failure{fmt.Errorf(format, args...), ErrRange} }
	switch {
	case end.Before(start):
		return refuse("end timestamp must not be before start time")
	case step <= 0:
		return refuse("zero or negative query resolution step widths are not accepted. Try a positive integer")
	case step < time.Millisecond:
		return refuse("the step of %v is finer than a millisecond. Try 1ms", step)
	case end.Sub(start)/step > MaxPoints:
		return refuse("exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)")
	}
	return nil
}

func isTimeout(err error) bool {
	var t promql.ErrQueryTimeout
	return errors.As(err, &t)
}
