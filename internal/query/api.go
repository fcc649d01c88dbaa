// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// maxBody is how large a request may be; a query of a megabyte is none.
const maxBody = 1 << 20

// BuildInfo is what /api/v1/status/buildinfo answers. Grafana chooses what it
// asks for by Version, which it takes for a version of Prometheus.
type BuildInfo struct {
	Version   string `json:"version"`
	Revision  string `json:"revision"`
	Branch    string `json:"branch"`
	BuildUser string `json:"buildUser"`
	BuildDate string `json:"buildDate"`
	GoVersion string `json:"goVersion"`
}

// API serves Prometheus's HTTP API under /api/v1/ over the reader. It answers
// as Prometheus does, in bodies and status codes; what there is nothing to
// say about (rules, alerts, exemplars) is answered with an empty list, and
// what writes or administers is not there. It neither compresses nor allows
// other origins.
func API(e *Engine, r Reader, info BuildInfo) http.Handler {
	a := &api{engine: e, reader: r, info: info, now: time.Now}
	mux := http.NewServeMux()
	handle := func(path string, f func(*http.Request) (answer, *fault)) {
		mux.Handle("GET /api/v1"+path, a.wrap(f))
	}
	both := func(path string, f func(*http.Request) (answer, *fault)) {
		handle(path, f)
		mux.Handle("POST /api/v1"+path, a.wrap(f))
	}
	both("/query", a.query)
	both("/query_range", a.queryRange)
	both("/format_query", a.formatQuery)
	both("/labels", a.labels)
	both("/series", a.series)
	handle("/label/{name}/values", a.labelValues)
	handle("/metadata", a.metadata)
	handle("/status/buildinfo", a.buildInfo)
	both("/query_exemplars", constant(`[]`))
	handle("/rules", constant(`{"groups":[]}`))
	handle("/alerts", constant(`{"alerts":[]}`))
	return mux
}

type api struct {
	engine *Engine
	reader Reader
	info   BuildInfo
	now    func() time.Time
}

// answer is the good end of a request: data is JSON.
type answer struct {
	data            []byte
	warnings, infos []string
}

// fault is the bad end of a request.
type fault struct {
	class
	err error
}

// class is a kind of error as the API names it, and its status code.
type class struct {
	name string
	code int
}

var (
	badData   = class{"bad_data", http.StatusBadRequest}
	execution = class{"execution", http.StatusUnprocessableEntity}
	timeout   = class{"timeout", http.StatusServiceUnavailable}
	internal  = class{"internal", http.StatusInternalServerError}
	canceled  = class{"canceled", 499} // nginx's code for a client that went away
)

func badParam(name string, err error) *fault {
	return &fault{badData, fmt.Errorf("invalid parameter %q: %w", name, err)}
}

// queryFault is the fault of an error of the engine.
func queryFault(err error) *fault {
	var syntax *SyntaxError
	switch {
	case errors.As(err, &syntax):
		return badParam("query", err)
	case errors.Is(err, context.Canceled):
		return &fault{canceled, err}
	case errors.Is(err, ErrLimit) && isTimeout(err), errors.Is(err, context.DeadlineExceeded):
		return &fault{timeout, err}
	case errors.Is(err, ErrRead):
		return &fault{internal, err}
	}
	return &fault{execution, err}
}

// wrap bounds a request, runs it and writes the envelope.
func (a *api) wrap(f func(*http.Request) (answer, *fault)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		ctx, cancel := context.WithTimeout(r.Context(), a.engine.timeout)
		defer cancel()
		r = r.WithContext(ctx)
		var out answer
		bad := &fault{class: badData}
		if bad.err = r.ParseForm(); bad.err != nil {
			bad.err = fmt.Errorf("error parsing form values: %w", bad.err)
		} else {
			out, bad = f(r)
		}
		w.Header().Set("Content-Type", "application/json")
		if bad != nil {
			w.WriteHeader(bad.code)
			w.Write(bad.body())
			return
		}
		w.Write(out.body())
	})
}

func (a *answer) body() []byte {
	b := make([]byte, 0, len(a.data)+64)
	b = append(b, `{"status":"success","data":`...)
	b = append(b, a.data...)
	if len(a.warnings) > 0 {
		b = appendStrings(append(b, `,"warnings":`...), a.warnings)
	}
	if len(a.infos) > 0 {
		b = appendStrings(append(b, `,"infos":`...), a.infos)
	}
	return append(b, '}')
}

func (f *fault) body() []byte {
	b := appendString([]byte(`{"status":"error","errorType":`), f.name)
	b = appendString(append(b, `,"error":`...), f.err.Error())
	return append(b, '}')
}

// ask is what the two kinds of query have in common.
func (a *api) ask(r *http.Request, run func(context.Context, settings) (*Result, *fault)) (answer, *fault) {
	limit, err := parseLimit(r.FormValue("limit"))
	if err != nil {
		return answer{}, badParam("limit", err)
	}
	ctx := r.Context()
	if s := r.FormValue("timeout"); s != "" {
		d, err := parseDuration(s)
		if err != nil {
			return answer{}, badParam("timeout", err)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	set := settings{stats: r.FormValue("stats") != ""}
	if s := r.FormValue("lookback_delta"); s != "" {
		if set.lookback, err = parseDuration(s); err != nil {
			return answer{}, &fault{badData, fmt.Errorf("error parsing lookback delta duration: %w", err)}
		}
	}
	res, bad := run(ctx, set)
	if bad != nil {
		return answer{}, bad
	}
	if limit > 0 && len(res.Series) > limit {
		res.Series = res.Series[:limit]
		res.Warnings = append(res.Warnings, truncated)
	}
	return answer{res.AppendJSON(nil), res.Warnings, res.Infos}, nil
}

const truncated = "results truncated due to limit"

func (a *api) query(r *http.Request) (answer, *fault) {
	return a.ask(r, func(ctx context.Context, s settings) (*Result, *fault) {
		at, err := timeParam(r, "time", a.now())
		if err != nil {
			return nil, badParam("time", err)
		}
		res, err := a.engine.instant(ctx, a.reader, r.FormValue("query"), at, s)
		if err != nil {
			return nil, queryFault(err)
		}
		return res, nil
	})
}

func (a *api) queryRange(r *http.Request) (answer, *fault) {
	return a.ask(r, func(ctx context.Context, s settings) (*Result, *fault) {
		start, err := parseTime(r.FormValue("start"))
		if err != nil {
			return nil, badParam("start", err)
		}
		end, err := parseTime(r.FormValue("end"))
		if err != nil {
			return nil, badParam("end", err)
		}
		step, err := parseDuration(r.FormValue("step"))
		if err != nil {
			return nil, badParam("step", err)
		}
		if err := checkRange(start, end, step); err != nil {
			return nil, rangeFault(start, end, step, err)
		}
		res, err := a.engine.ranged(ctx, a.reader, r.FormValue("query"), start, end, step, s)
		if err != nil {
			return nil, queryFault(err)
		}
		return res, nil
	})
}

// rangeFault names the parameter at fault, where there is one.
func rangeFault(start, end time.Time, step time.Duration, err error) *fault {
	switch {
	case end.Before(start):
		return badParam("end", err)
	case step < time.Millisecond:
		return badParam("step", err)
	}
	return &fault{badData, err}
}
