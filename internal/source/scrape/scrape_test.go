// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// answers is an endpoint whose answer a test sets.
type answers struct {
	*httptest.Server
	handler atomic.Pointer[http.HandlerFunc]
}

func serve(t testing.TB) *answers {
	t.Helper()
	a := &answers{}
	a.text("")
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*a.handler.Load())(w, r) }))
	t.Cleanup(a.Close)
	return a
}

func (a *answers) by(f http.HandlerFunc) { a.handler.Store(&f) }

func (a *answers) text(body string) {
	a.by(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) })
}

func open(t testing.TB, e Endpoint) *Source {
	t.Helper()
	if e.Timeout == 0 {
		e.Timeout = time.Minute // a virtual machine may be slow
	}
	s, err := New(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// fails reads an endpoint that must fail, by the count of it.
func fails(t *testing.T, s *Source, by failure) {
	t.Helper()
	before := s.fate.failures[by]
	var f metric.Frame
	s.failed = 0
	err := s.Read(&f)
	if err == nil || s.fate.failures[by] != before+1 || s.fate.up {
		t.Errorf("error %v, failures %v; want one by %s", err, s.fate.failures, failureNames[by])
	}
}

func TestHTTP(t *testing.T) {
	a := serve(t)
	s := open(t, Endpoint{URL: a.URL, Name: "app"})
	a.by(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "" || password != "" || !strings.Contains(r.Header.Get("Accept"), "text/plain") {
			t.Errorf("asked with %v", r.Header)
		}
		io.WriteString(w, exposition)
	})
	var f metric.Frame
	if err := s.Read(&f); err != nil {
		t.Fatal(err)
	}
	if got := values(&f); got["metric_without_timestamp_and_labels"] != 12.47 || len(got) != 14 {
		t.Errorf("%v", got)
	}
	if f.Begin <= 0 || f.End < f.Begin || f.Schema.Source != "scrape/app" {
		t.Errorf("%+v", f)
	}
	if e, _ := f.Schema.Series[0].Label(endpointKey); e != "app" {
		t.Errorf("endpoint %q", e)
	}
}

func TestGzip(t *testing.T) {
	a := serve(t)
	s := open(t, Endpoint{URL: a.URL, MaxBytes: 1 << 20})
	zipped := func(body string) {
		a.by(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			io.WriteString(z, body)
			z.Close()
		})
	}
	for range 2 {
		zipped("a 17\n")
		var f metric.Frame
		if err := s.Read(&f); err != nil || values(&f)["a"] != 17 {
			t.Errorf("%v, %v", values(&f), err)
		}
	}
	zipped("a 17\n" + strings.Repeat("\n", 20<<20)) // 20 KB on the wire
	fails(t, s, bySize)
	if cap(s.body) > 1<<20+1 {
		t.Errorf("%d bytes were taken", cap(s.body))
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	a := serve(t)
	s := open(t, Endpoint{URL: a.URL, MaxBytes: 1 << 20})
	a.by(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "a 1", http.StatusInternalServerError) })
	fails(t, s, byStatus)
	a.text("<html></html>\n")
	fails(t, s, byContent)
	a.text("a 1\n" + strings.Repeat("#\n", 1<<19))
	fails(t, s, bySize)
	a.by(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "a 1\n")
	})
	fails(t, s, byConnection)
	a.by(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openmetrics-text; version=1.0.0")
		io.WriteString(w, "a 1\n")
	})
	fails(t, s, byContent)
	a.by(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, "a 1\n")
	})
	fails(t, s, byConnection)
	a.by(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) }) // for ever
	fails(t, s, byConnection)
	a.by(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) })
	fails(t, s, byConnection)
	a.by(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openmetrics-text; version=1.0.0")
		io.WriteString(w, "a 1\n# EOF\n")
	})
	var f metric.Frame
	if err := s.Read(&f); err != nil || values(&f)["a"] != 1 {
		t.Errorf("%v, %v", values(&f), err)
	}
}

// TestSlowEndpoints is of those that hang before, within and at the end of
// their answer, and of one that gives a byte now and then.
func TestSlowEndpoints(t *testing.T) {
	over := make(chan struct{})
	defer close(over)
	hang := func(r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}
	for name, f := range map[string]http.HandlerFunc{
		"silent": func(_ http.ResponseWriter, r *http.Request) { hang(r) },
		"half": func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "a 1\n")
			w.(http.Flusher).Flush()
			hang(r)
		},
		"drops": func(w http.ResponseWriter, r *http.Request) {
			for i := 0; r.Context().Err() == nil; i++ {
				fmt.Fprintf(w, "a{i=\"%d\"} 1\n", i)
				w.(http.Flusher).Flush()
				time.Sleep(5 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := serve(t)
			a.by(f)
			s := open(t, Endpoint{URL: a.URL, Timeout: 100 * time.Millisecond})
			began := time.Now()
			fails(t, s, byTimeout)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			a.text("a 1\n")
			s.options.Timeout = time.Minute
			var frame metric.Frame
			if err := s.Read(&frame); err != nil {
				t.Errorf("once it answers: %v", err)
			}
		})
	}
}

// TestTheNetworkThatHangs is of a connection that nobody accepts.
func TestTheNetworkThatHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, scheme := range []string{"http://", "http+json://", "memcache://"} {
		fails(t, open(t, Endpoint{URL: scheme + l.Addr().String(), Timeout: 50 * time.Millisecond}), byTimeout)
	}
}

func TestCloseEndsAScrape(t *testing.T) {
	a := serve(t)
	asked := make(chan struct{})
	a.by(func(_ http.ResponseWriter, r *http.Request) { close(asked); <-r.Context().Done() })
	s := open(t, Endpoint{URL: a.URL, Interval: time.Hour, Timeout: time.Hour})
	ended := make(chan error)
	go func() { ended <- s.Read(&metric.Frame{}) }()
	<-asked
	s.Close()
	if err := <-ended; err == nil {
		t.Error("no error")
	}
}

// TestARestart is of an endpoint that goes, and comes back with counters that
// begin anew.
func TestARestart(t *testing.T) {
	body := func(n int) string { return fmt.Sprintf("# TYPE a_total counter\na_total %d\n", n) }
	handler := func(n int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body(n)) })
	}
	server := httptest.NewServer(handler(1009))
	address := server.Listener.Addr().String()
	s := open(t, Endpoint{URL: server.URL, Timeout: 10 * time.Second})
	wall := int64(1e18)
	s.wall = func() int64 { wall += 1e9; return wall }
	var f metric.Frame
	if err := s.Read(&f); err != nil || f.Values[0] != 1009 || f.Schema.Series[0].Start != 0 {
		t.Fatalf("%+v, %v", f, err)
	}
	before := f.Schema
	server.Close()
	for i := 1; i < endAfter; i++ {
		if err := s.Read(&f); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("failure %d: %v", i, err)
		}
	}
	if err := s.Read(&f); err != nil || len(f.Schema.Series) != 0 || len(f.Values) != 0 {
		t.Errorf("the series did not end: %+v, %v", f, err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again := httptest.NewUnstartedServer(handler(17))
	again.Listener.Close()
	again.Listener = l
	again.Start()
	defer again.Close()
	if err := s.Read(&f); err != nil {
		t.Fatal(err)
	}
	if c := f.Schema.Series[0]; f.Values[0] != 17 || c.Start != wall || f.Schema == before {
		t.Errorf("after the restart: %d from %d on", f.Values[0], c.Start)
	}
	if s.fate.failures[byConnection] != endAfter || s.fate.scrapes != endAfter+2 || !s.fate.up {
		t.Errorf("%+v", s.fate)
	}
}

func TestAnEndpointThatHangsDelaysNoOther(t *testing.T) {
	stuck, good := serve(t), serve(t)
	asked := make(chan struct{})
	stuck.by(func(_ http.ResponseWriter, r *http.Request) { close(asked); <-r.Context().Done() })
	good.text("a 1\n")
	all := Samplers([]Endpoint{{URL: stuck.URL, Name: "stuck", Timeout: time.Hour, Interval: time.Hour}, {URL: good.URL, Name: "good"}}, nil)
	var opened []source.Source
	for _, s := range all {
		o, err := s.Open()
		if err != nil {
			t.Fatal(err)
		}
		opened = append(opened, o)
	}
	if !all[0].Blocking || all[2].Blocking || all[2].Name != "scrape" {
		t.Errorf("%+v", all)
	}
	var reading sync.WaitGroup
	reading.Go(func() { opened[0].Read(&metric.Frame{}) })
	<-asked
	var f metric.Frame
	if err := opened[1].Read(&f); err != nil {
		t.Error(err)
	}
	if err := opened[2].Read(&f); err != nil {
		t.Error(err)
	}
	health := func() map[string]uint64 {
		m := map[string]uint64{}
		for _, s := range f.Schema.Series {
			m[s.Desc.Name+" "+strings.Join(s.Values, " ")] = f.Values[s.Off]
		}
		return m
	}
	if m := health(); m["scrape_up good"] != 1 || m["scrape_series good"] != 1 || m["scrape_size good"] != 4 || m["scrape_requests good"] != 1 || m["scrape_duration good"] == 0 {
		t.Errorf("%v", m)
	} else if _, told := m["scrape_up stuck"]; told {
		t.Error("what was never scraped is said to be down")
	}
	opened[0].Close()
	reading.Wait()
	opened[2].Read(&f)
	if m := health(); m["scrape_up stuck"] != 0 || m["scrape_requests stuck"] != 1 || m["scrape_up good"] != 1 {
		t.Errorf("%v", m)
	}
	if n := testing.AllocsPerRun(100, func() { opened[2].Read(&f) }); n != 0 {
		t.Errorf("%v allocations in a read of how endpoints fare", n)
	}
}

func TestDroppedSamplesAreCounted(t *testing.T) {
	a := serve(t)
	a.text("a{i=\"1\"} 1\na{i=\"2\"} 1\na{i=\"3\"} 1\n")
	s := open(t, Endpoint{URL: a.URL, MaxSeries: 2})
	var f metric.Frame
	for i := range uint64(3) {
		if err := s.Read(&f); err != nil || f.Lost != i+1 || s.fate.dropped[overBound] != i+1 {
			t.Errorf("%d lost, %v dropped, %v", f.Lost, s.fate.dropped, err)
		}
	}
}

func TestPasswordsAreSentAndNotTold(t *testing.T) {
	a := serve(t)
	a.by(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "secret" {
			t.Errorf("asked as %s, %s", user, password)
		}
		w.WriteHeader(http.StatusForbidden)
	})
	e := Endpoint{URL: strings.Replace(a.URL, "//", "//me:secret@", 1)}
	s := open(t, e)
	err := s.Read(&metric.Frame{})
	told := fmt.Sprint(err, s.Name(), s.options.Name, Samplers([]Endpoint{e}, nil)[0].Reads, Check([]Endpoint{{URL: "http://me:secret@:x/"}}))
	if !strings.Contains(told, "403") || strings.Contains(told, "secret") {
		t.Errorf("told %s", told)
	}
}

func TestCheck(t *testing.T) {
	good := []Endpoint{{URL: "http://a:1/metrics"}, {URL: "https://b"}, {URL: "http+json://c"}, {URL: "memcache://d", Prefix: "pelikan_"}}
	if err := Check(good); err != nil {
		t.Error(err)
	}
	for _, e := range []Endpoint{{URL: ""}, {URL: "a:1"}, {URL: "ftp://a"}, {URL: "http://"}, {URL: "http://x", Prefix: "A"}, {URL: "http://a:1", Name: "b"}, {URL: "http://\x00"}} {
		if err := Check(append(good, e)); err == nil {
			t.Errorf("%+v is accepted", e)
		}
	}
}

const memcached = "STAT pid 7\r\nSTAT version 1.6.9\r\nSTAT curr_connections 10\r\nSTAT cmd_get 1009\r\nSTAT rusage_user 0.123456\r\nSTAT bytes 5\r\n" +
	"STAT tcp_send_byte 11\r\nSTAT libevent 2.1.8-stable\r\nEND\r\n"

// memcachedBy is a server that does f with each connection after the command.
func memcachedBy(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			serving.Go(func() {
				defer c.Close()
				if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "stats\r\n" {
					t.Errorf("asked %q, %v", line, err)
				}
				f(c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
	return l.Addr().String()
}
