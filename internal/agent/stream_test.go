// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// serve runs an agent with a server of its streams. The function it returns
// ends the agent; the server ends with the test.
func serve(t *testing.T) (a *Agent, server *httptest.Server, end func()) {
	a = New(Options{Run: &metric.Run{Host: "here"}})
	a.Add(newFake("a"), SourceOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	server = httptest.NewServer(a.StreamHandler())
	t.Cleanup(server.Close)
	return a, server, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func follow(t *testing.T, server *httptest.Server, query string) *http.Response {
	t.Helper()
	response, err := server.Client().Get(server.URL + query)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

func TestStreamIsARecording(t *testing.T) {
	_, server, end := serve(t)
	d := store.NewDecoder(follow(t, server, "?interval=2ms").Body)
	for n := uint64(1); n <= 5; n++ {
		tick, err := d.Next()
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := frame(tick, "a"); !ok || v == 0 || tick.Seq != n || tick.Run.Host != "here" {
			t.Errorf("tick %d of the stream: number %d, value %d", n, tick.Seq, v)
		}
	}
	end()
	var err error
	for err == nil {
		_, err = d.Next()
	}
	if !errors.Is(err, io.EOF) || !d.Closed() {
		t.Errorf("the stream of an agent that stopped ends with %v, closed %v", err, d.Closed())
	}
	if r := follow(t, server, ""); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("an agent that stopped answers %s, want 503", r.Status)
	}
}

// A follower learns at once that it was heard, not with the first tick.
func TestAStreamBeginsBeforeItsFirstTick(t *testing.T) {
	_, server, end := serve(t)
	defer end()
	if r := follow(t, server, "?interval=1h"); r.StatusCode != http.StatusOK {
		t.Errorf("the answer is %s", r.Status)
	}
}

func TestStreamRefuses(t *testing.T) {
	a, server, end := serve(t)
	defer end()
	f := func(query string, status int, want string) {
		t.Helper()
		r := follow(t, server, query)
		text, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != status || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s, %q, %v; want %d that says %q", query, r.Status, text, err, status, want)
		}
	}
	f("?interval=x", http.StatusBadRequest, "1ms to 1h0m0s")
	f("?interval=1ns", http.StatusBadRequest, "1ms to 1h0m0s")
	f("?interval=2h", http.StatusBadRequest, "1ms to 1h0m0s")
	a.stats.followers.Store(maxFollowers)
	f("", http.StatusServiceUnavailable, "64 streams")
	a.stats.followers.Store(maxFollowers - 1)
	follow(t, server, "?interval=1ms")
}

// slowWriter takes nothing until it is let.
type slowWriter struct {
	bytes.Buffer
	wait chan struct{}
}

func (w *slowWriter) Header() http.Header { return http.Header{} }
func (w *slowWriter) WriteHeader(int)     {}
func (w *slowWriter) Flush()              {}
func (w *slowWriter) Write(b []byte) (int, error) {
	if len(b) > 0 {
		<-w.wait
	}
	return w.Buffer.Write(b)
}

func TestASlowFollowerLosesTicksAndSeesIt(t *testing.T) {
	run(t, map[*fake]SourceOptions{newFake("a"): {}}, func(a *Agent) {
		w := &slowWriter{wait: make(chan struct{})}
		ctx, cancel := context.WithCancel(context.Background())
		request := httptest.NewRequestWithContext(ctx, "GET", "/stream?interval=10ms", nil)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			a.StreamHandler().ServeHTTP(w, request)
		}()
		other := subscribe(t, a, 10*time.Millisecond, 1000)
		time.Sleep(3*time.Second + time.Millisecond)
		if n := len(other.C()); n != 300 {
			t.Errorf("next to a slow follower come %d ticks, want 300", n)
		}
		dropped := a.Status().Dropped
		close(w.wait)
		time.Sleep(10 * time.Millisecond)
		cancel()
		<-ended
		d := store.NewDecoder(&w.Buffer)
		ticks, lost, last := uint64(0), uint64(0), uint64(0)
		for tick, err := d.Next(); err == nil; tick, err = d.Next() {
			ticks++
			lost += tick.Seq - last - 1
			last = tick.Seq
		}
		// One is on its way, encoded, and the mailbox is full of others.
		if dropped != 300-101 || lost != dropped || ticks+lost != 301 {
			t.Errorf("%d ticks came, %d are missing in their numbers, %d were dropped", ticks, lost, dropped)
		}
	})
}
