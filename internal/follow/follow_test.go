// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"rezolus/internal/agent"
	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// one is a source of one counter: how often it was read.
type one struct {
	schema *metric.Schema
	reads  uint64
}

func newOne(t *testing.T) *one {
	s, err := metric.NewSchema("one", []metric.Series{{Desc: &metric.Desc{Name: "reads", Kind: metric.Counter}}})
	if err != nil {
		t.Fatal(err)
	}
	return &one{schema: s}
}

func (o *one) Name() string { return "one" }
func (o *one) Close() error { return nil }
func (o *one) Read(f *metric.Frame) error {
	o.reads++
	f.Schema = o.schema
	f.Resize(1)
	f.Values[0] = o.reads
	return nil
}

// anAgent runs an agent that ends with the test, or before.
func anAgent(t *testing.T, id byte) (a *agent.Agent, end func()) {
	a = agent.New(agent.Options{Run: &metric.Run{ID: [16]byte{id}, Host: "here"}, Self: agent.Self{Off: true}})
	a.Add(newOne(t), agent.SourceOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return a, end
}

// remember keeps the ticks of an agent in a window, at an interval.
func remember(t *testing.T, a *agent.Agent, interval time.Duration) {
	window := store.NewWindow(0)
	sub, err := a.Subscribe("window", interval, 8)
	if err != nil {
		t.Fatal(err)
	}
	a.SetBackfill(func(time.Duration) agent.Backfill { return window })
	go func() {
		for s := range sub.C() {
			_ = window.Put(s) // what is not there is missed by the test
			sub.Release(s)
		}
	}()
}

// proxy hands connections through, until they are cut.
type proxy struct {
	l  net.Listener
	mu sync.Mutex
	to string
	on []net.Conn
}

func newProxy(t *testing.T, to string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, to: to}
	t.Cleanup(func() { l.Close(); p.cut() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

func (p *proxy) serve(c net.Conn) {
	defer c.Close()
	p.mu.Lock()
	to := p.to
	p.mu.Unlock()
	d, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer d.Close()
	p.mu.Lock()
	p.on = append(p.on, c, d)
	p.mu.Unlock()
	go func() {
		defer d.Close()
		_, _ = io.Copy(d, c) // until one of the two is closed
	}()
	_, _ = io.Copy(c, d)
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.on {
		c.Close()
	}
	p.on = nil
}

func (p *proxy) redirect(to string) {
	p.mu.Lock()
	p.to = to
	p.mu.Unlock()
}

func host(t *testing.T, server *httptest.Server) string {
	return strings.TrimPrefix(server.URL, "http://")
}

func (p *proxy) options(interval time.Duration) Options {
	return Options{URL: &url.URL{Scheme: "http", Host: p.l.Addr().String()}, Interval: interval}
}

func open(t *testing.T, o Options) *Stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	s, err := Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func next(t *testing.T, s *Stream) Tick {
	t.Helper()
	tick, err := s.Next()
	if err != nil {
		t.Fatal(err)
	}
	return tick
}

// A connection that is cut twenty times costs no tick, and the records that
// came are one chain that can be read to its end.
func TestCutsLoseNothing(t *testing.T) {
	for name, packed := range map[string]bool{"as it is": false, "zstd": true} {
		t.Run(name, func(t *testing.T) {
			a, _ := anAgent(t, 1)
			server := httptest.NewServer(a.StreamHandler())
			t.Cleanup(server.Close)
			p := newProxy(t, host(t, server))
			broke := 0
			o := p.options(5 * time.Millisecond)
			o.Compress = packed
			o.State = func(err error) {
				if err != nil {
					broke++
				}
			}
			s := open(t, o)
			kept, seen, last := store.Header(), 0, next(t, s)
			kept = append(kept, last.Raw...)
			for ; broke < 20 || seen < 200; seen++ {
				if seen%9 == 5 && broke < 20 {
					p.cut()
				}
				tick := next(t, s)
				if tick.Seq != last.Seq+1 || tick.Gap != nil || tick.Wall != last.Wall+5e6*int64(1+tick.Missed) {
					t.Fatalf("after tick %d comes %d, gap %v", last.Seq, tick.Seq, tick.Gap)
				}
				kept, last = append(kept, tick.Raw...), tick
			}
			d := store.NewDecoder(strings.NewReader(string(kept)))
			for n := 0; n <= seen; n++ {
				tick, err := d.Next()
				if err != nil || tick.Frames[0].Values[0] == 0 {
					t.Fatalf("tick %d of what was kept: %v", n, err)
				}
			}
		})
	}
}

// A follower that was away for longer gets what the window has, and the
// numbers say that nothing is missing (but what a busy machine was too late for).
func TestTheWindowFillsWhatALongerAbsenceLeft(t *testing.T) {
	a, _ := anAgent(t, 1)
	remember(t, a, 10*time.Millisecond)
	server := httptest.NewServer(a.StreamHandler())
	t.Cleanup(server.Close)
	s := open(t, newProxy(t, host(t, server)).options(20*time.Millisecond))
	for range 3 {
		next(t, s)
	}
	last := next(t, s)
	s.Restart() // the agent has forgotten the stream
	time.Sleep(600 * time.Millisecond)
	holes := uint64(0)
	for range 40 {
		tick := next(t, s)
		ticks := (tick.Wall-last.Wall)/20e6 - int64(tick.Missed)
		if tick.Seq != last.Seq+uint64(ticks) || tick.Wall%20e6 != 0 {
			t.Fatalf("after tick %d at %d comes %d at %d, gap %v", last.Seq, last.Wall, tick.Seq, tick.Wall, tick.Gap)
		}
		holes += tick.Seq - last.Seq - 1
		last = tick
	}
	if holes > 15 {
		t.Errorf("%d ticks are missing, and the absence had 30", holes)
	}
}

// Without a window the absence is a gap, and its ticks are missing in the
// numbers.
func TestWhatIsLostIsAGap(t *testing.T) {
	a, _ := anAgent(t, 1)
	server := httptest.NewServer(a.StreamHandler())
	t.Cleanup(server.Close)
	s := open(t, newProxy(t, host(t, server)).options(10*time.Millisecond))
	next(t, s)
	last := next(t, s)
	s.Restart()
	time.Sleep(100 * time.Millisecond)
	tick := next(t, s)
	lost := uint64((tick.Wall-last.Wall)/10e6) - 1
	if lost < 8 || tick.Gap == nil || tick.Gap.Ticks != lost || tick.Seq != last.Seq+lost+1 ||
		tick.Gap.From != last.Wall+10e6 || tick.Gap.To != tick.Wall-10e6 {
		t.Errorf("%d ticks lost; gap %+v, number %d after %d", lost, tick.Gap, tick.Seq, last.Seq)
	}
}

// What the agent says it missed is between the gap and the tick, and in one of
// the two only.
func TestAGapEndsBeforeWhatTheAgentMissed(t *testing.T) {
	for missed, want := range map[uint64]store.Gap{
		0: {From: 60, To: 90, Ticks: 4},
		2: {From: 60, To: 70, Ticks: 2},
		4: {From: 60, To: 60},

		math.MaxUint64: {From: 60, To: 60},
	} {
		s := Stream{last: store.Tick{Seq: 5, Wall: 50, Interval: 10}, run: metric.Run{ID: [16]byte{1}}, newRun: metric.Run{ID: [16]byte{2}}}
		want.Reason = "the agent was restarted"
		if g := s.gap(store.Tick{Seq: 1, Wall: 100, Interval: 10, Missed: missed}); *g != want {
			t.Errorf("%d missed: gap %+v, want %+v", missed, *g, want)
		}
	}
}

func TestAnAgentThatIsRestarted(t *testing.T) {
	a, end := anAgent(t, 1)
	server := httptest.NewServer(a.StreamHandler())
	p := newProxy(t, host(t, server))
	s := open(t, p.options(5*time.Millisecond))
	defer s.Close() // before the server, which waits for its connections
	last := next(t, s)
	end()
	server.Close()
	b, _ := anAgent(t, 2)
	server = httptest.NewServer(b.StreamHandler())
	t.Cleanup(server.Close)
	p.redirect(host(t, server))
	for {
		tick := next(t, s)
		if tick.Run.ID == last.Run.ID { // was under way
			last = tick
			continue
		}
		if tick.Gap == nil || tick.Gap.Reason != "the agent was restarted" || tick.Gap.From != last.Wall+5e6 || tick.Run.ID != [16]byte{2} {
			t.Errorf("the first tick of the new agent: %+v, gap %+v", tick.Tick, tick.Gap)
		}
		break
	}
}

// One that accepts and says nothing is given up, and tried again.
func TestAnAgentThatHangs(t *testing.T) {
	a, _ := anAgent(t, 1)
	hangs, requests := make(chan struct{}), 0
	stream := a.StreamHandler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("bye") == "" {
			if requests++; requests == 1 {
				w.Header().Set("Content-Type", "application/vnd.rezolus.recording")
				_ = http.NewResponseController(w).Flush() // the answer's head, and nothing else
				<-hangs
				return
			}
		}
		stream.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(hangs) })
	o := newProxy(t, host(t, server)).options(5 * time.Millisecond)
	o.Idle = 100 * time.Millisecond
	var why error
	o.State = func(err error) {
		if err != nil {
			why = err
		}
	}
	s := open(t, o)
	if next(t, s); why == nil || !strings.Contains(why.Error(), "nothing came for 100ms") {
		t.Errorf("it was given up because %v", why)
	}
}

func TestWhoIsNoAgent(t *testing.T) {
	status := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status != 0 {
			http.Error(w, "go away", status)
		}
	}))
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("me", "secret")
	for _, status = range []int{0, 404, 401, 503} {
		_, err := Open(t.Context(), Options{URL: u, Interval: time.Second})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%d: %v", status, err)
		}
		if got := errors.Is(err, ErrNoAgent); got != (status == 0 || status == 404) {
			t.Errorf("%d: is no agent %v: %v", status, got, err)
		}
		var answer *StatusError
		if status == 401 && (!errors.As(err, &answer) || answer.Code != 401 || !strings.Contains(answer.Error(), "go away")) {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// A follower that ends leaves no tick behind that only it wanted.
func TestCloseIsHeard(t *testing.T) {
	a, _ := anAgent(t, 1)
	server := httptest.NewServer(a.StreamHandler())
	t.Cleanup(server.Close)
	s := open(t, newProxy(t, host(t, server)).options(time.Millisecond))
	next(t, s)
	s.Close()
	if n := len(a.Status().Consumers); n != 0 {
		t.Errorf("%d followers after the only one said goodbye", n)
	}
}
