// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rezolus/internal/agent"
	"rezolus/internal/follow"
	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source/scrape"
	"rezolus/internal/store"
)

// one is a source of one counter, which has a label of its own that an
// endpoint has, too.
type one struct {
	schema *metric.Schema
	reads  uint64
}

func (o *one) Name() string { return "one" }
func (o *one) Close() error { return nil }
func (o *one) Read(f *metric.Frame) error {
	o.reads++
	f.Schema, f.Begin, f.End = o.schema, host.Mono(), host.Mono()
	f.Resize(1)
	f.Values[0] = o.reads
	return nil
}

// machine is an agent behind an address that outlives it.
type machine struct {
	address string
	stop    func()
}

// start runs an agent at an address; "" takes one.
func start(t *testing.T, id byte, address string) *machine {
	t.Helper()
	schema, err := metric.NewSchema("one", []metric.Series{{Values: []string{"mine"},
		Desc: &metric.Desc{Name: "reads", Kind: metric.Counter, Keys: []string{"source"}}}})
	if err != nil {
		t.Fatal(err)
	}
	a := agent.New(agent.Options{Run: &metric.Run{ID: [16]byte{id}}, Self: agent.Self{Off: true}})
	a.Add(&one{schema: schema}, agent.SourceOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: a.StreamHandler()}
	go func() { _ = server.Serve(l) }() // ends with Close
	h := &machine{address: l.Addr().String(), stop: sync.OnceFunc(func() {
		server.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})}
	t.Cleanup(h.stop)
	return h
}

func (h *machine) endpoint(source, role string) Endpoint {
	return Endpoint{Name: h.address, Source: source, Role: role,
		Agent: &follow.Options{URL: &url.URL{Scheme: "http", Host: h.address}, Idle: 2 * time.Second}}
}

func scraped(u, source string) Endpoint {
	return Endpoint{Name: strings.TrimPrefix(u, "http://"), Source: source, Scrape: &scrape.Endpoint{URL: u + "/metrics"}}
}

// story is what a gatherer told.
type story struct {
	mu     sync.Mutex
	ticks  []metric.Snapshot
	gaps   []store.Gap
	events []string
	more   chan struct{}
}

// gather runs until the test ends it. Nobody is waited for any longer than for
// an agent that ended.
func gather(t *testing.T, interval time.Duration, ends ...Endpoint) (s *story, stop func()) {
	t.Helper()
	return gatherHolding(t, patience, interval, ends...)
}

func gatherHolding(t *testing.T, hold, interval time.Duration, ends ...Endpoint) (s *story, stop func()) {
	t.Helper()
	s = &story{more: make(chan struct{}, 1)}
	tell := func(f func()) {
		s.mu.Lock()
		f()
		s.mu.Unlock()
		select {
		case s.more <- struct{}{}:
		default:
		}
	}
	g, err := New(Options{Interval: interval, Run: &metric.Run{Host: "recorder", Started: 1}, Endpoints: ends,
		Put: func(tick *metric.Snapshot) error {
			tell(func() {
				var copied metric.Snapshot
				copied.CopyFrom(tick)
				s.ticks = append(s.ticks, copied)
			})
			return nil
		},
		Gap:   func(g store.Gap) { tell(func() { s.gaps = append(s.gaps, g) }) },
		Event: func(e store.Event) { tell(func() { s.events = append(s.events, e.Text) }) },
	})
	if err != nil {
		t.Fatal(err)
	}
	g.hold = hold
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return s, stop
}

// until waits until the story is as it should be.
func (s *story) until(t *testing.T, what string, f func() bool) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		s.mu.Lock()
		ok := f()
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-s.more:
		case <-late:
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Fatalf("%s never came: %d ticks, gaps %v, events %q", what, len(s.ticks), s.gaps, s.events)
		}
	}
}

// lost is how many ticks the gaps between two have.
func (s *story) lost(from, to int64) (n uint64) {
	for _, g := range s.gaps {
		if g.From > from && g.To < to {
			n += g.Ticks
		}
	}
	return n
}

// unbroken tells whether the last n ticks are there without one missing.
func (s *story) unbroken(n int) bool {
	ticks := s.last(n)
	return len(ticks) == n && ticks[n-1].Seq-ticks[0].Seq == uint64(n-1) && s.lost(ticks[0].Wall, ticks[n-1].Wall) == 0
}

func (s *story) last(n int) []metric.Snapshot { return s.ticks[max(0, len(s.ticks)-n):] }

// value is the word of the series with that name and all those labels in a
// tick.
func value(s *metric.Snapshot, name string, labels ...string) (word uint64, ok bool) {
	for i := range s.Frames {
		f := &s.Frames[i]
	next:
		for k := range f.Schema.Series {
			e := &f.Schema.Series[k]
			if e.Desc.Name != name {
				continue
			}
			for l := 0; l < len(labels); l += 2 {
				if v, _ := e.Label(labels[l]); v != labels[l+1] {
					continue next
				}
			}
			return f.Values[e.Off], true
		}
	}
	return 0, false
}

// prometheus is an endpoint to scrape: a counter, a ratio, a classic histogram.
func prometheus(t *testing.T, count *atomic.Uint64, hang func() <-chan struct{}) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		if wait := hang(); wait != nil {
			select {
			case <-wait:
			case <-r.Context().Done():
			}
		}
		n := count.Add(1)
		fmt.Fprintf(w, "# TYPE requests_total counter\nrequests_total %d\n# TYPE ratio gauge\nratio 0.375\n"+
			"# TYPE wait_seconds histogram\nwait_seconds_bucket{le=\"0.5\"} 3\nwait_seconds_bucket{le=\"+Inf\"} 4\nwait_seconds_sum 2.5\nwait_seconds_count 4\n", n)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestTwoAgentsAndAnEndpoint(t *testing.T) {
	a, b := start(t, 1, ""), start(t, 2, "")
	var count atomic.Uint64
	u := prometheus(t, &count, func() <-chan struct{} { return nil })
	s, stop := gather(t, 20*time.Millisecond, a.endpoint("rezolus", "service"), b.endpoint("rezolus", "loadgen"), scraped(u, "web"))
	at := 0 // ticks when all are there
	s.until(t, "five ticks with everything in them", func() bool {
		at = len(s.ticks)
		if at < 30 {
			return false
		}
		for i := range s.ticks[at-5:] {
			tick := &s.ticks[at-5+i]
			n, one := value(tick, "reads", "endpoint", a.address)
			m, two := value(tick, "reads", "endpoint", b.address)
			if !one || !two || min(n, m) < 10 {
				return false
			}
		}
		_, scraped := value(&s.ticks[at-1], "requests_total")
		return scraped
	})
	stop()
	for i := range s.ticks {
		tick := &s.ticks[i]
		if tick.Wall%20e6 != 0 {
			t.Errorf("tick %d of number %d is at %d", i, tick.Seq, tick.Wall)
		}
		if i == 0 {
			continue
		}
		// On a busy machine both agents may come too late for a tick: then there
		// is a gap, and the numbers have it.
		before := &s.ticks[i-1]
		if n := tick.Seq - before.Seq; n == 0 || tick.Wall != before.Wall+20e6*int64(n) || s.lost(before.Wall, tick.Wall) != n-1 {
			t.Errorf("tick %d of number %d is at %d after %d at %d, gaps %v", i, tick.Seq, tick.Wall, before.Seq, before.Wall, s.gaps)
		}
	}
	for _, tick := range s.ticks[at-5 : at] {
		for _, h := range []*machine{a, b} {
			if n, ok := value(&tick, "reads", "endpoint", h.address, "source", "rezolus", "exported_source", "mine"); !ok || n < 10 {
				t.Errorf("agent %s in tick %d: %d, %v", h.address, tick.Seq, n, ok)
			}
			if up, ok := value(&tick, "recorder_endpoint_up", "endpoint", h.address); !ok || up != 1 {
				t.Errorf("agent %s is up: %d, %v", h.address, up, ok)
			}
		}
		if _, ok := value(&tick, "reads", "endpoint", a.address, "role", "loadgen"); ok {
			t.Error("an endpoint has another's role")
		}
		for i := range tick.Frames {
			if f := &tick.Frames[i]; f.Begin > f.End || f.End < tick.Mono-1e9 || f.Begin > tick.Mono+1e9 {
				t.Errorf("frame of %s was read from %d to %d, the tick is at %d", f.Schema.Source, f.Begin, f.End, tick.Mono)
			}
		}
	}
	tick := s.ticks[at-1]
	if word, ok := value(&tick, "ratio", "source", "web"); !ok || math.Float64frombits(word) != 0.375 {
		t.Errorf("a ratio is %v, %v", math.Float64frombits(word), ok)
	}
	if n, ok := value(&tick, "wait_seconds_bucket", "le", "0.5", "endpoint", strings.TrimPrefix(u, "http://")); !ok || n != 3 {
		t.Errorf("a bucket is %d, %v", n, ok)
	}
}

// One that accepts and never answers, an agent and one that is scraped, hold
// up nobody.
func TestThoseThatHangHoldUpNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // is never accepted from
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	a := start(t, 1, "")
	hung := &machine{address: l.Addr().String()}
	var count atomic.Uint64
	never := make(chan struct{})
	u := prometheus(t, &count, func() <-chan struct{} { return never })
	silent := hung.endpoint("", "")
	silent.Agent.Idle = 300 * time.Millisecond
	s, stop := gather(t, 20*time.Millisecond, a.endpoint("", ""), silent, scraped(u, ""))
	// For longer than it takes to give those up; not all ticks, of which the
	// agent itself misses some on a busy machine.
	s.until(t, "30 ticks without one missing", func() bool { return len(s.ticks) >= 100 && s.unbroken(30) })
	stop()
	if up, ok := value(&s.last(1)[0], "recorder_endpoint_up", "endpoint", hung.address); !ok || up != 0 {
		t.Errorf("the one that hangs is up: %d, %v", up, ok)
	}
}

// An agent that goes away takes only its own series with it, and its counters
// begin anew when it is back.
func TestAnAgentGoesAndComes(t *testing.T) {
	a, b := start(t, 1, ""), start(t, 2, "")
	s, stop := gather(t, 20*time.Millisecond, a.endpoint("", ""), b.endpoint("", ""))
	has := func(h *machine) bool {
		if len(s.ticks) == 0 {
			return false
		}
		_, ok := value(&s.ticks[len(s.ticks)-1], "reads", "endpoint", h.address)
		return ok
	}
	both := 0
	s.until(t, "both agents", func() bool { both = len(s.ticks); return has(a) && has(b) })
	b.stop()
	ended := func() bool {
		for _, tick := range s.ticks {
			for _, f := range tick.Frames {
				if f.Schema.Source == "-@"+b.address+"/one" && len(f.Schema.Series) == 0 {
					return true
				}
			}
		}
		return false
	}
	s.until(t, "the end of its series", ended)
	gone := 0
	s.until(t, "100 ticks without it", func() bool {
		if gone == 0 {
			gone = len(s.ticks)
		}
		return len(s.ticks) >= gone+100
	})
	again := start(t, 3, b.address)
	s.until(t, "its return", func() bool { return has(again) })
	stop()
	// The other was too late for some, on a busy machine, but not for as long
	// as the one was away.
	lost := s.lost(0, math.MaxInt64)
	longest := slices.MaxFunc(append(s.gaps, store.Gap{}), func(a, b store.Gap) int { return cmp.Compare(a.Ticks, b.Ticks) })
	if longest.Ticks > 50 || lost > uint64(len(s.ticks))/2 {
		t.Errorf("%d ticks are missing beside %d, though one agent was always there: gaps %v", lost, len(s.ticks), s.gaps)
	}
	without := 0
	for i := range s.ticks {
		if _, ok := value(&s.ticks[i], "reads", "endpoint", a.address); !ok && i >= both {
			without++
		}
	}
	if without > len(s.ticks)/2 {
		t.Errorf("the agent that stayed is not in %d of %d ticks", without, len(s.ticks))
	}
	tick := s.last(1)[0]
	if n, _ := value(&tick, "recorder_endpoint_returns", "endpoint", b.address); n != 1 {
		t.Errorf("it came back %d times, want 1", n)
	}
	if n, _ := value(&tick, "recorder_endpoint_missed", "endpoint", b.address); n < 10 {
		t.Errorf("of the one that was away %d ticks are missing", n)
	}
	text := strings.Join(s.events, "\n")
	for _, want := range []string{b.address + " cannot be read: ", b.address + " is read again", b.address + ": the agent was restarted"} {
		if !strings.Contains(text, want) {
			t.Errorf("no event says %q:\n%s", want, text)
		}
	}
}

// A restarted endpoint counts anew: a later start, not a guess.
func TestAScrapedCounterIsReset(t *testing.T) {
	var count atomic.Uint64
	count.Store(1000)
	u := prometheus(t, &count, func() <-chan struct{} { return nil })
	s, stop := gather(t, 100*time.Millisecond, scraped(u, ""))
	total := func() (series *metric.Series, word uint64) {
		for _, f := range s.last(1)[0].Frames {
			for i := range f.Schema.Series {
				if e := &f.Schema.Series[i]; e.Desc.Name == "requests_total" {
					return e, f.Values[e.Off]
				}
			}
		}
		return nil, 0
	}
	s.until(t, "the counter", func() bool {
		if len(s.ticks) < 2 {
			return false
		}
		e, word := total()
		return e != nil && word > 1000
	})
	s.mu.Lock()
	before, _ := total()
	s.mu.Unlock()
	count.Store(0)
	s.until(t, "the reset", func() bool {
		e, word := total()
		return e != nil && word < 1000 && e.Start > before.Start
	})
	stop()
}

func TestNobodyAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // nobody is there now
	h := &machine{address: l.Addr().String()}
	g, err := New(Options{Interval: 10 * time.Millisecond, Run: &metric.Run{}, Endpoints: []Endpoint{h.endpoint("", ""), scraped("http://"+h.address, "x")},
		Put: func(*metric.Snapshot) error { return nil }, Gap: func(store.Gap) {}, Event: func(store.Event) {}})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Run(t.Context()); err == nil || strings.Count(err.Error(), "no answer from "+h.address) != 2 {
		t.Errorf("nobody answers: %v", err)
	}
}

// One that is not said to be an agent is scraped.
func TestWhoIsNoAgentIsScraped(t *testing.T) {
	var count atomic.Uint64
	u := prometheus(t, &count, func() <-chan struct{} { return nil })
	e := scraped(u, "")
	at, err := url.Parse(u)
	if err != nil {
		t.Fatal(err)
	}
	e.Agent = &follow.Options{URL: at}
	s, stop := gather(t, 100*time.Millisecond, e)
	s.until(t, "a scrape", func() bool { return len(s.ticks) > 0 })
	stop()
}
