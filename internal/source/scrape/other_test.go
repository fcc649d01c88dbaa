// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"rezolus/internal/metric"
)

func TestMemcache(t *testing.T) {
	address := memcachedBy(t, func(c net.Conn) {
		for i := range memcached { // as slowly as a network may
			io.WriteString(c, memcached[i:i+1])
		}
		io.Copy(io.Discard, c) // and does not hang up
	})
	s := open(t, Endpoint{URL: "memcache://" + address})
	var f metric.Frame
	for range 2 {
		if err := s.Read(&f); err != nil {
			t.Fatal(err)
		}
	}
	got := values(&f)
	for name, want := range map[string]float64{"memcache_pid": 7, "memcache_curr_connections": 10, "memcache_cmd_get": 1009, "memcache_rusage_user": 0.123456,
		"memcache_bytes": 5, "memcache_tcp_send_byte": 11} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if len(got) != 6 {
		t.Errorf("%v", got)
	}
	for name, want := range map[string]metric.Kind{"memcache_cmd_get": metric.Counter, "memcache_tcp_send_byte": metric.Counter, "memcache_pid": metric.Gauge,
		"memcache_curr_connections": metric.Gauge} {
		if k := find(&f, name).Desc.Kind; k != want {
			t.Errorf("%s is a %s", name, k)
		}
	}
}

func TestMemcacheThatFails(t *testing.T) {
	for answer, by := range map[string]failure{
		"ERROR\r\n": byStatus, "SERVER_ERROR out of memory\r\n": byStatus, "STAT a 1\r\n": byConnection, "": byConnection,
		"hello\r\nEND\r\n": byContent, strings.Repeat("STAT a 1\r\n", 1<<17): bySize,
	} {
		address := memcachedBy(t, func(c net.Conn) { io.WriteString(c, answer) })
		fails(t, open(t, Endpoint{URL: "memcache://" + address, MaxBytes: 1 << 20}), by)
	}
}

func TestJSON(t *testing.T) {
	a := serve(t)
	s := open(t, Endpoint{URL: strings.Replace(a.URL, "http:", "http+json:", 1), Prefix: "app_", Counters: []string{"requests", "cache_hits"}})
	a.text(`{"requests": 1009, "load": 0.5, "cache": {"hits": 7, "Miss-Rate": -1e3, "deep": {"x": 1}}, "name": "x", "list": [1, {"a": [2]}], "up": true, "none": null}`)
	var f metric.Frame
	if err := s.Read(&f); err != nil {
		t.Fatal(err)
	}
	got := values(&f)
	for name, want := range map[string]float64{"app_requests": 1009, "app_load": 0.5, "app_cache_hits": 7, "app_cache_miss_rate": -1000, "app_cache_deep_x": 1} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if len(got) != 5 || find(&f, "app_cache_hits").Desc.Kind != metric.Counter || find(&f, "app_load").Desc.Kind != metric.Gauge {
		t.Errorf("%v", got)
	}
	first := f.Schema
	if err := s.Read(&f); err != nil || f.Schema != first {
		t.Errorf("the same document gives another schema, %v", err)
	}
	for _, body := range []string{"", "[1]", "7", `{"a": 1`, `{"a": 1} x`, `{"a": [1}`, "{" + strings.Repeat(`"a":{`, 20) + strings.Repeat("}", 21)} {
		a.text(body)
		fails(t, s, byContent)
	}
}

func FuzzStats(f *testing.F) {
	f.Add([]byte(memcached))
	f.Add([]byte(`{"a": {"b": 1.5}, "c": [1]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := newReader(t, Endpoint{MaxSeries: 50})
		for _, parse := range []func([]byte) error{(&stats{r.table}).parse, (&document{r.table, nil}).parse} {
			r.begin(1)
			if parse(body) != nil {
				r.abandon()
			} else if err := r.finish(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestTimeoutIsWhatItSays(t *testing.T) {
	if by := why(fmt.Errorf("x: %w", os.ErrDeadlineExceeded)); by != byTimeout {
		t.Error(failureNames[by])
	}
	if by := why(context.Canceled); by != byConnection {
		t.Error(failureNames[by])
	}
}

// BenchmarkScrape is of 10,000 lines over loopback, server and all.
func BenchmarkScrape(b *testing.B) {
	a := serve(b)
	a.text(string(big(10_000)))
	s := open(b, Endpoint{URL: a.URL})
	var f metric.Frame
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Read(&f); err != nil {
			b.Fatal(err)
		}
	}
}
