// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"rezolus/internal/metric"
)

func TestNegotiate(t *testing.T) {
	f := func(accept string, want Format) {
		t.Helper()
		if got := Negotiate(accept); got != want {
			t.Errorf("Accept %q gives %v, want %v", accept, got, want)
		}
	}
	f("", Text)
	f("*/*", Text)
	f("text/html", Text)
	f("application/openmetrics-text", OpenMetrics)
	f("Application/OpenMetrics-Text; version=1.0.0; Q=0.5, */*;q=0.1", OpenMetrics)
	f("application/openmetrics-text,text/plain;q=0", OpenMetrics)
	f("application/openmetrics-text;q=0", Text)
	f("application/openmetrics-text,text/*;q=0.1", Text)
	f("application/vnd.google.protobuf;q=1,text/plain;q=0.4", Text)
	const delimited = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
	f(delimited, Protobuf)
	f(delimited+";q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1", Protobuf)
	f(delimited+";q=0.3,text/plain;version=0.0.4;q=0.3", Text)
	f(strings.Replace(delimited, "delimited", "text", 1)+",text/plain;q=0.1", Text)
	// Prometheus 3.
	f("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,"+
		"text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2", Text)
}

// scrape asks a handler and returns the answer, whose body is read but still
// compressed.
func scrape(h http.Handler, accept, encoding string) (http.Header, string) {
	request := httptest.NewRequest("GET", "/metrics", nil)
	request.Header.Set("Accept", accept)
	request.Header.Set("Accept-Encoding", encoding)
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, request)
	return recorder.Header(), recorder.Body.String()
}

func of(s *metric.Snapshot) func(context.Context) (*metric.Snapshot, error) {
	return func(context.Context) (*metric.Snapshot, error) { return s, nil }
}

func TestHandler(t *testing.T) {
	h := Handler(of(snapshot(t)))
	want := string(NewWriter().Append(nil, snapshot(t), OpenMetrics))
	f := func(encoding string, compressed bool) {
		t.Helper()
		for range 2 { // the second time with used memory
			header, body := scrape(h, "application/openmetrics-text", encoding)
			if got := header.Get("Content-Encoding") == "gzip"; got != compressed {
				t.Fatalf("Accept-Encoding %q: compressed %v, want %v", encoding, got, compressed)
			}
			if !compressed && header.Get("Content-Length") != strconv.Itoa(len(body)) {
				t.Errorf("length %s for %d bytes", header.Get("Content-Length"), len(body))
			}
			if compressed {
				body = unzip(t, body)
			}
			if body != want || header.Get("Content-Type") != OpenMetrics.ContentType() {
				t.Errorf("Accept-Encoding %q: %s\n%s", encoding, header.Get("Content-Type"), body)
			}
		}
	}
	f("", false)
	f("gzip", true)
	f("deflate, gzip;q=0.5", true)
	f("gzip;q=0", false)
	f("identity", false)
}

func unzip(t *testing.T, body string) string {
	t.Helper()
	r, err := gzip.NewReader(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestHandlerWithoutASnapshot(t *testing.T) {
	recorder := httptest.NewRecorder()
	Handler(func(context.Context) (*metric.Snapshot, error) { return nil, errors.New("no tick") }).
		ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
	if recorder.Code != http.StatusServiceUnavailable || !strings.Contains(recorder.Body.String(), "no tick") {
		t.Errorf("%d %s", recorder.Code, recorder.Body)
	}
}

// stuck is a client that never reads.
type stuck struct {
	*httptest.ResponseRecorder
	until chan struct{}
}

func (s stuck) Write(b []byte) (int, error) { <-s.until; return s.ResponseRecorder.Write(b) }

func TestAStuckClientDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := Handler(of(snapshot(t)))
		slow := stuck{httptest.NewRecorder(), make(chan struct{})}
		go h.ServeHTTP(slow, httptest.NewRequest("GET", "/metrics", nil))
		synctest.Wait()
		_, want := scrape(h, "", "")
		close(slow.until)
		synctest.Wait()
		if got := slow.Body.String(); got != want || want == "" {
			t.Errorf("the slow client got\n%s\nthe other\n%s", got, want)
		}
	})
}
