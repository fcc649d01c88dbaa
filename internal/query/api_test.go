// SPDX-License-Identifier: Apache-2.0

package query

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"rezolus/internal/metric"
)

// server is the API over a few columns at 1700000000.
type server struct {
	t *testing.T
	h http.Handler
}

func serve(t *testing.T, r Reader) server {
	info := BuildInfo{Version: "3.15.0", Revision: "abc", GoVersion: "go1.26"}
	return server{t, API(New(Options{}), r, info)}
}

func apiReader() *fakeReader {
	switches := desc("switches", metric.Counter, "id", "kind")
	switches.Unit = "events"
	latency := desc("latency", metric.Histogram)
	latency.Unit = metric.Nanoseconds
	return &fakeReader{columns: []metric.Column{
		words(switches, []string{"0", "voluntary"}, -500, [2]float64{0, 10}, [2]float64{1000, 20}, [2]float64{2500, 35}),
		words(switches, []string{"1", "voluntary"}, -500, [2]float64{0, 1}, [2]float64{1000, 2}, [2]float64{2500, 3}),
		words(desc("temp", metric.Gauge, "path"), []string{"/a\"<b>\n\xff"}, 0, [2]float64{0, -5}),
		dense(latency, nil, -500, []float64{0, 1000}, [][]uint64{counts(3), counts(3, 20)}),
	}}
}

func (s server) do(r *http.Request) (int, string) {
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// get expects an answer with the data, posted is the same by POST.
func (s server) get(path, data string) {
	s.t.Helper()
	s.check(httptest.NewRequest("GET", path, nil), 200, `{"status":"success","data":`+data+`}`)
}

func (s server) both(path, data string) {
	s.t.Helper()
	s.get(path, data)
	u, _ := url.Parse(path)
	r := httptest.NewRequest("POST", u.Path, strings.NewReader(u.RawQuery))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	s.check(r, 200, `{"status":"success","data":`+data+`}`)
}

func (s server) fails(path string, code int, kind, text string) {
	s.t.Helper()
	message, _ := json.Marshal(text)
	want := `{"status":"error","errorType":"` + kind + `","error":` + string(message) + `}`
	s.check(httptest.NewRequest("GET", path, nil), code, want)
}

func (s server) check(r *http.Request, code int, want string) {
	s.t.Helper()
	gotCode, got := s.do(r)
	if gotCode != code || got != want {
		s.t.Errorf("%s %s:\n got %d %s\nwant %d %s", r.Method, r.URL, gotCode, got, code, want)
	}
	if !json.Valid([]byte(got)) {
		s.t.Errorf("%s: invalid JSON", r.URL)
	}
}

func TestQuery(t *testing.T) {
	s := serve(t, apiReader())
	s.both("/api/v1/query?query=switches{id=%220%22}&time=1700000001",
		`{"resultType":"vector","result":[{"metric":{"__name__":"switches","id":"0","kind":"voluntary"},"value":[1700000001,"20"]}]}`)
	s.both("/api/v1/query?query=switches{id=%220%22}[5s]&time=2023-11-14T22:13:22.5Z",
		`{"resultType":"matrix","result":[{"metric":{"__name__":"switches","id":"0","kind":"voluntary"},"values":[[1700000000,"10"],[1700000001,"20"],[1700000002.500,"35"]]}]}`)
	s.get("/api/v1/query?query=1e30&time=1.5", `{"resultType":"scalar","result":[1.500,"1000000000000000000000000000000"]}`)
	s.get("/api/v1/query?query=vector(1e30)&time=1700000001", `{"resultType":"vector","result":[{"metric":{},"value":[1700000001,"1e+30"]}]}`)
	s.get("/api/v1/query?query=-1/0&time=-1.005", `{"resultType":"scalar","result":[-1.005,"-Inf"]}`)
	s.get(`/api/v1/query?query="a%20text"&time=1`, `{"resultType":"string","result":[1,"a text"]}`)
	s.get("/api/v1/query?query=nothing&time=1700000001", `{"resultType":"vector","result":[]}`)
	s.get("/api/v1/query?query=temp&time=1700000000",
		`{"resultType":"vector","result":[{"metric":{"__name__":"temp","path":"/a\"<b>\n`+"\uFFFD"+`"},"value":[1700000000,"-5"]}]}`)
	s.get("/api/v1/query?query=latency&time=1700000001",
		`{"resultType":"vector","result":[{"metric":{"__name__":"latency"},"histogram":[1700000001,{"count":"2","sum":"23.5","buckets":[[0,"2","3","1"],[0,"19","21","1"]]}]}]}`)
	s.get("/api/v1/query?query=switches&time=1700000061&lookback_delta=2m&limit=1",
		`{"resultType":"vector","result":[{"metric":{"__name__":"switches","id":"0","kind":"voluntary"},"value":[1700000061,"35"]}]},"warnings":["results truncated due to limit"]`)
	s.get("/api/v1/query?query=rate(latency[10s:1s])&time=1700000001&timeout=5s",
		`{"resultType":"vector","result":[{"metric":{},"histogram":[1700000001,{"count":"0.15","sum":"3.0749999999999997","buckets":[[0,"19","21","0.15"]]}]}]}`)
}

func TestQueryAnnotations(t *testing.T) {
	s := serve(t, apiReader())
	s.get("/api/v1/query?query=histogram_quantile(2,latency)&time=1700000001",
		`{"resultType":"vector","result":[{"metric":{},"value":[1700000001,"+Inf"]}]},"warnings":["PromQL warning: quantile value should be between 0 and 1, got 2 (1:20)"]`)
	// Names say nothing about kinds here; the description does.
	s.get("/api/v1/query?query=rate(switches{id=%220%22}[2s])&time=1700000001", `{"resultType":"vector","result":[{"metric":{"id":"0","kind":"voluntary"},"value":[1700000001,"10"]}]}`)
	s.get("/api/v1/query?query=sum(rate(temp[2s]))&time=1700000001", `{"resultType":"vector","result":[]},"infos":["PromQL info: metric is a gauge, not a counter: \"temp\""]`)
}

func TestQueryRange(t *testing.T) {
	s := serve(t, apiReader())
	s.both("/api/v1/query_range?query=switches{id=%220%22}&start=1700000000&end=1700000001.5&step=0.5",
		`{"resultType":"matrix","result":[{"metric":{"__name__":"switches","id":"0","kind":"voluntary"},"values":[[1700000000,"10"],[1700000000.500,"10"],[1700000001,"20"],[1700000001.500,"20"]]}]}`)
	s.both("/api/v1/query_range?query=latency&start=2023-11-14T22:13:20%2B00:00&end=1700000001&step=1s",
		`{"resultType":"matrix","result":[{"metric":{"__name__":"latency"},"histograms":[[1700000000,{"count":"1","sum":"3","buckets":[[0,"2","3","1"]]}],[1700000001,{"count":"2","sum":"23.5","buckets":[[0,"2","3","1"],[0,"19","21","1"]]}]]}]}`)
	s.get("/api/v1/query_range?query=1&start=0&end=1&step=500ms", `{"resultType":"matrix","result":[{"metric":{},"values":[[0,"1"],[0.500,"1"],[1,"1"]]}]}`)
	_, body := s.do(httptest.NewRequest("GET", "/api/v1/query_range?query=switches&start=1700000000&end=1700000001&step=1&stats=true", nil))
	if !strings.Contains(body, `"stats":{"timings":{`) || !strings.Contains(body, `"totalQueryableSamples":4`) {
		t.Errorf("no statistics in %s", body)
	}
}

func TestQueryErrors(t *testing.T) {
	s := serve(t, apiReader())
	bad := func(path, text string) { t.Helper(); s.fails(path, 400, "bad_data", text) }
	bad("/api/v1/query?query=rate(a", `invalid parameter "query": 1:7: parse error: unclosed left parenthesis`)
	bad("/api/v1/query", `invalid parameter "query": unknown position: parse error: no expression found in input`)
	bad("/api/v1/query?query=a&time=yesterday", `invalid parameter "time": invalid time value for 'time': cannot parse "yesterday" to a valid timestamp`)
	bad("/api/v1/query?query=a&timeout=x", `invalid parameter "timeout": cannot parse "x" to a valid duration`)
	bad("/api/v1/query?query=a&limit=x", `invalid parameter "limit": strconv.Atoi: parsing "x": invalid syntax`)
	bad("/api/v1/query?query=a&limit=-1", `invalid parameter "limit": limit must be non-negative`)
	bad("/api/v1/query?query=a&lookback_delta=x", `error parsing lookback delta duration: cannot parse "x" to a valid duration`)
	bad("/api/v1/query_range?query=a", `invalid parameter "start": cannot parse "" to a valid timestamp`)
	bad("/api/v1/query_range?query=a&start=1", `invalid parameter "end": cannot parse "" to a valid timestamp`)
	bad("/api/v1/query_range?query=a&start=2&end=1&step=1", `invalid parameter "end": end timestamp must not be before start time`)
	bad("/api/v1/query_range?query=a&start=1&end=2", `invalid parameter "step": cannot parse "" to a valid duration`)
	bad("/api/v1/query_range?query=a&start=1&end=2&step=0", `invalid parameter "step": zero or negative query resolution step widths are not accepted. Try a positive integer`)
	bad("/api/v1/query_range?query=a&start=1&end=2&step=1e300", `invalid parameter "step": cannot parse "1e300" to a valid duration. It overflows int64`)
	bad("/api/v1/query_range?query=a&start=0&end=11001&step=1", `exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)`)
	bad("/api/v1/query_range?query=a[1m]&start=1&end=2&step=1", `invalid parameter "query": invalid expression type "range vector" for range query, must be Scalar or instant Vector`)
	s.fails("/api/v1/query?query=switches%2Bon(kind)switches&time=1700000001", 422, "execution",
		`found duplicate series for the match group {kind="voluntary"} on the right hand-side of the operation: [{__name__="switches", id="0", kind="voluntary"}, {__name__="switches", id="1", kind="voluntary"}];many-to-many matching not allowed: matching labels must be unique on one side`)
	slow := serve(t, &fakeReader{columns: apiReader().columns, block: make(chan struct{})})
	slow.fails("/api/v1/query?query=temp&time=1700000000&timeout=1ms", 503, "timeout", "query timed out in expression evaluation")
	broken := serve(t, &fakeReader{columns: apiReader().columns, err: errors.New("disk on fire")})
	broken.fails("/api/v1/query?query=temp&time=1700000000", 500, "internal", "expanding series: disk on fire")
	broken.fails("/api/v1/labels", 422, "execution", "disk on fire")
	large := httptest.NewRequest("POST", "/api/v1/query", strings.NewReader("query="+strings.Repeat("1", maxBody)))
	large.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	s.check(large, 400, `{"status":"error","errorType":"bad_data","error":"error parsing form values: http: request body too large"}`)
	if code, _ := s.do(httptest.NewRequest("GET", "/api/v1/nothing", nil)); code != 404 {
		t.Errorf("an unknown path has status %d", code)
	}
	if code, _ := s.do(httptest.NewRequest("DELETE", "/api/v1/query", nil)); code != 405 {
		t.Errorf("DELETE has status %d", code)
	}
}

func TestCatalog(t *testing.T) {
	s := serve(t, apiReader())
	s.both("/api/v1/labels", `["__name__","id","kind","path"]`)
	s.both("/api/v1/labels?match[]=temp&match[]=latency", `["__name__","path"]`)
	s.get("/api/v1/labels?limit=2", `["__name__","id"],"warnings":["results truncated due to limit"]`)
	s.get("/api/v1/label/id/values", `["0","1"]`)
	s.get("/api/v1/label/__name__/values", `["latency","switches","temp"]`)
	s.get("/api/v1/label/__name__/values?match[]={id=%220%22}&start=1700000000&end=1700000001", `["switches"]`)
	s.get("/api/v1/label/id/values?end=1699999999", `[]`)
	s.get("/api/v1/label/none/values", `[]`)
	s.both("/api/v1/series?match[]=switches&match[]={id=%220%22}",
		`[{"__name__":"switches","id":"0","kind":"voluntary"},{"__name__":"switches","id":"1","kind":"voluntary"}]`)
	s.get("/api/v1/series?match[]=switches&limit=1", `[{"__name__":"switches","id":"0","kind":"voluntary"}],"warnings":["results truncated due to limit"]`)
	s.get("/api/v1/series?match[]=switches&start=1800000000", `[]`)
	s.get("/api/v1/metadata", `{"latency":[{"type":"histogram","unit":"nanoseconds","help":"help of latency"}],`+
		`"switches":[{"type":"counter","unit":"events","help":"help of switches"}],"temp":[{"type":"gauge","unit":"","help":"help of temp"}]}`)
	s.get("/api/v1/metadata?metric=temp", `{"temp":[{"type":"gauge","unit":"","help":"help of temp"}]}`)
	s.get("/api/v1/metadata?limit=1&limit_per_metric=1", `{"latency":[{"type":"histogram","unit":"nanoseconds","help":"help of latency"}]}`)
	s.get("/api/v1/status/buildinfo", `{"version":"3.15.0","revision":"abc","branch":"","buildUser":"","buildDate":"","goVersion":"go1.26"}`)
	s.both("/api/v1/format_query?query=sum(a)by(b)", `"sum by (b) (a)"`)
	s.get("/api/v1/rules", `{"groups":[]}`)
	s.get("/api/v1/alerts", `{"alerts":[]}`)
	s.both("/api/v1/query_exemplars?query=a", `[]`)

	s.fails("/api/v1/series", 400, "bad_data", "no match[] parameter provided")
	s.fails("/api/v1/series?match[]={", 400, "bad_data", `invalid parameter "match[]": 1:2: parse error: unexpected end of input inside braces`)
	s.fails("/api/v1/labels?match[]={id=~%22.*%22}", 400, "bad_data", "match[] must contain at least one non-empty matcher")
	s.fails("/api/v1/labels?start=x", 400, "bad_data", `invalid parameter "start": invalid time value for 'start': cannot parse "x" to a valid timestamp`)
	s.fails("/api/v1/metadata?limit=x", 400, "bad_data", "limit must be a number")
	s.fails("/api/v1/label/%ff/values", 400, "bad_data", `invalid label name: "\xff"`)
}

func TestAnEmptyReaderHasEmptyAnswers(t *testing.T) {
	s := serve(t, &fakeReader{})
	s.get("/api/v1/query?query=a", `{"resultType":"vector","result":[]}`)
	s.get("/api/v1/labels", `[]`)
	s.get("/api/v1/label/id/values", `[]`)
	s.get("/api/v1/series?match[]=a", `[]`)
	s.get("/api/v1/metadata", `{}`)
}

func FuzzParameters(f *testing.F) {
	for _, s := range []string{"1700000000.123", "-1e18", "NaN", "1h30m", "2023-11-14T22:13:20Z", "-292273086-05-16T16:47:06Z", "1e400", "", "0x1p-2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if at, err := parseTime(s); err == nil && (at.Before(minTime) || at.After(maxTime)) {
			t.Errorf("time %q is %v, beyond all times", s, at)
		}
		if d, err := parseDuration(s); err == nil {
			if again, err := parseDuration(d.String()); err == nil && again != d && again.Truncate(time.Millisecond) != again {
				t.Errorf("duration %q is %v, and that is %v", s, d, again)
			}
		}
		if n, err := parseLimit(s); err == nil && n < 0 {
			t.Errorf("limit %q is %d", s, n)
		}
		if !json.Valid(appendString(nil, s)) {
			t.Errorf("%q is not valid JSON", appendString(nil, s))
		}
	})
}
