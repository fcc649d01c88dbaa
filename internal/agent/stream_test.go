// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
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
		time.Sleep(200 * time.Millisecond) // longer than a stream lets ticks gather
		cancel()
		<-ended
		d := store.NewDecoder(&w.Buffer)
		ticks, lost, last, told := uint64(0), uint64(0), uint64(0), uint64(0)
		for tick, err := d.Next(); err == nil; tick, err = d.Next() {
			ticks++
			lost += tick.Seq - last - 1
			last = tick.Seq
			for _, g := range d.Gaps() {
				told += g.Ticks
			}
		}
		// One is on its way, encoded, and the mailbox is full of others.
		if dropped != 300-101 || lost != dropped || told != lost || ticks+lost != last || last <= 300 {
			t.Errorf("%d ticks came, %d are missing in their numbers, %d were dropped", ticks, lost, dropped)
		}
	})
}

func TestSentKeepsTheLatest(t *testing.T) {
	var s sent
	if !s.has(0) || s.has(1) {
		t.Error("nothing was sent: only a follower that has nothing can go on")
	}
	b := make([]byte, 1000)
	for seq := uint64(5); seq < 2000; seq++ {
		if seq%10 == 0 { // dropped on the way
			continue
		}
		b[0] = byte(seq)
		s.add(seq, b)
		if s.last() != seq || s.has(seq+1) || !s.has(seq) || seq < 200 && !s.has(4) {
			t.Fatalf("after tick %d: last %d, has it %v", seq, s.last(), s.has(seq))
		}
	}
	if s.has(4) || s.has(1400) || !s.has(1999-200) {
		t.Error("it has what is too old, or not what is new")
	}
	parts := s.after(1985)
	all := append(append([]byte{}, parts[0]...), parts[1]...)
	var got []byte
	for ; len(all) >= 1000; all = all[1000:] {
		got = append(got, all[0])
	}
	want := []byte{}
	for seq := 1986; seq < 2000; seq++ {
		if seq%10 != 0 {
			want = append(want, byte(seq))
		}
	}
	if !bytes.Equal(got, want) || len(all) > 0 {
		t.Errorf("after 1985: %v, want %v", got, want)
	}
}

// A stream that nobody comes back for ends, and with it the ticks that only it
// wanted.
func TestAStreamLingers(t *testing.T) {
	run(t, map[*fake]SourceOptions{newFake("a"): {}}, func(a *Agent) {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			a.StreamHandler().ServeHTTP(&slowWriter{wait: closed()}, httptest.NewRequestWithContext(ctx, "GET", "/stream?interval=10ms&id=x", nil))
		}()
		time.Sleep(time.Second)
		cancel()
		<-ended
		time.Sleep(linger - time.Second)
		if n := len(a.Status().Consumers); n != 1 || a.stats.followers.Load() != 1 {
			t.Errorf("a while after the follower left there are %d streams, want 1", n)
		}
		time.Sleep(2 * time.Second)
		if n := len(a.Status().Consumers); n != 0 || a.stats.followers.Load() != 0 || len(a.streams.byName) != 0 {
			t.Errorf("long after the follower left there are %d streams", n)
		}
	})
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// Ten followers at 100 Hz, one of which takes nothing: no tick is missed, and
// the nine have all of theirs.
func TestTenFollowers(t *testing.T) {
	run(t, map[*fake]SourceOptions{newFake("a"): {}}, func(a *Agent) {
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		writers := make([]*slowWriter, 10)
		for i := range writers {
			writers[i] = &slowWriter{wait: closed()}
			if i == 3 {
				writers[i].wait = make(chan struct{})
			}
			all.Go(func() {
				a.StreamHandler().ServeHTTP(writers[i], httptest.NewRequestWithContext(ctx, "GET", "/stream?interval=10ms", nil))
			})
		}
		time.Sleep(5*time.Second + time.Millisecond)
		if s := a.Status(); s.Missed != 0 || s.Ticks != 500 {
			t.Errorf("the agent took %d ticks and missed %d, want 500 and 0", s.Ticks, s.Missed)
		}
		time.Sleep(pause(10 * time.Millisecond)) // for what gathers
		close(writers[3].wait)
		cancel()
		all.Wait()
		for i, w := range writers {
			if i == 3 {
				continue
			}
			d, n := store.NewDecoder(&w.Buffer), uint64(0)
			for tick, err := d.Next(); err == nil && tick.Seq == n+1; tick, err = d.Next() {
				n++
			}
			if n < 500 {
				t.Errorf("follower %d has %d ticks in a row, want 500", i, n)
			}
		}
	})
}

// BenchmarkTenFollowers is what a tick costs with ten followers, nothing being
// read but one word.
func BenchmarkTenFollowers(b *testing.B) {
	a := New(Options{Run: &metric.Run{}, Self: Self{Off: true}})
	a.Add(newFake("a"), SourceOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	server := httptest.NewServer(a.StreamHandler())
	var all sync.WaitGroup
	begin := make(chan struct{}, 10)
	for range 10 {
		all.Go(func() {
			r, err := server.Client().Get(server.URL + "/stream?interval=10ms")
			if err != nil {
				b.Error(err)
				return
			}
			defer r.Body.Close()
			d := store.NewDecoder(r.Body)
			for n := 0; ; n++ {
				if _, err := d.Next(); err != nil {
					return
				}
				if n == 0 {
					begin <- struct{}{}
				}
			}
		})
	}
	for range 10 {
		<-begin
	}
	ticks, missed := a.Status().Ticks, a.Status().Missed
	for b.Loop() {
		time.Sleep(10 * time.Millisecond)
	}
	b.ReportMetric(float64(a.Status().Missed-missed)/float64(a.Status().Ticks-ticks), "missed/tick")
	cancel()
	all.Wait()
	server.Close()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}

// FuzzStreamWish holds the parser to its bounds.
func FuzzStreamWish(f *testing.F) {
	f.Add("interval=10ms&id=x&run=00112233445566778899aabbccddeeff&since=3&after=17&meta=a%3Db", "gzip, zstd")
	f.Add("run=0&since=-1", "")
	f.Fuzz(func(t *testing.T, query, encoding string) {
		r := &http.Request{Method: "GET", URL: &url.URL{Path: "/stream", RawQuery: query}, Header: http.Header{"Accept-Encoding": {encoding}}}
		w, err := parseWish(r)
		if err == nil && (len(w.id) > maxID || int64(w.since) < 0 || w.packed && !strings.Contains(encoding, "zstd")) {
			t.Errorf("%q: %+v", query, w)
		}
	})
}

// An interval and a follower of another run, with a past that is finer: what
// comes is on the follower's grid, with the frames of all sources since the
// tick before, and numbered from 1.
func TestThePastIsThinned(t *testing.T) {
	schemas := map[string]*metric.Schema{"a": newFake("a").schema, "b": newFake("b").schema}
	run := &metric.Run{ID: [16]byte{9}}
	c := catcher{interval: 40e6, run: [16]byte{1}, last: 7, at: 1, seen: 1}
	var got []uint64
	for i := int64(1); i <= 12; i++ {
		s := &metric.Snapshot{Run: run, Wall: i * 10e6, Interval: 10e6, Seq: uint64(i) + 100,
			Frames: []metric.Frame{{Schema: schemas["a"], Values: []uint64{uint64(i)}}}}
		if i%4 == 2 {
			s.Frames = append(s.Frames, metric.Frame{Schema: schemas["b"], Values: []uint64{uint64(i)}})
		}
		if !c.take(s) {
			continue
		}
		a, _ := frame(&c.tick, "a")
		b, ok := frame(&c.tick, "b")
		if c.tick.Wall != i*10e6 || a != uint64(i) || !ok || b != uint64(i)-2 || len(c.tick.Frames) != 2 {
			t.Errorf("tick at %d: a %d, b %d, %d frames", c.tick.Wall, a, b, len(c.tick.Frames))
		}
		got = append(got, c.tick.Seq)
		c.last, c.at, c.tick.Frames = c.tick.Seq, c.tick.Wall, c.tick.Frames[:0]
	}
	if len(got) != 3 || got[0] != 1 || got[1] != 2 || got[2] != 3 {
		t.Errorf("numbers %v, want 1, 2, 3", got)
	}
}

// What the agent missed is missed for who comes back; what a memory lost is a
// hole in the numbers.
func TestThePastTellsMissedFromLost(t *testing.T) {
	run := &metric.Run{ID: [16]byte{1}}
	for name, c := range map[string]struct {
		walls, missed []int64
		want          [][2]uint64 // number and missed
	}{
		"whole":                  {[]int64{110, 120, 130}, []int64{0, 0, 0}, [][2]uint64{{8, 0}, {9, 0}, {10, 0}}},
		"missed":                 {[]int64{110, 140, 150}, []int64{0, 2, 0}, [][2]uint64{{8, 0}, {9, 2}, {10, 0}}},
		"lost":                   {[]int64{110, 140, 150}, []int64{0, 0, 0}, [][2]uint64{{8, 0}, {11, 0}, {12, 0}}},
		"missed at first":        {[]int64{130, 140}, []int64{2, 0}, [][2]uint64{{8, 2}, {9, 0}}},
		"lost at first":          {[]int64{130, 140}, []int64{1, 0}, [][2]uint64{{10, 0}, {11, 0}}},
		"of a finer memory":      {[]int64{105, 110, 115, 125, 130}, []int64{0, 0, 0, 1, 0}, [][2]uint64{{8, 0}, {9, 1}}},
		"lost of a finer memory": {[]int64{105, 110, 115, 125, 130}, []int64{0, 0, 0, 0, 0}, [][2]uint64{{8, 0}, {10, 0}}},
	} {
		interval := int64(10e6)
		if c.walls[0] == 105 {
			interval = 5e6
		}
		catch := catcher{interval: 10e6, run: run.ID, last: 7, at: 100e6, seen: 100e6}
		var got [][2]uint64
		for i, wall := range c.walls {
			s := &metric.Snapshot{Run: run, Wall: wall * 1e6, Interval: interval, Missed: uint64(c.missed[i])}
			catch.join(s)
			if catch.take(s) {
				got = append(got, [2]uint64{catch.tick.Seq, catch.tick.Missed})
				catch.last, catch.at, catch.torn = catch.tick.Seq, catch.tick.Wall, false
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: numbers and missed %v, want %v", name, got, c.want)
		}
	}
}

// memory is a past that is told from its beginning.
type memory []*metric.Snapshot

func (m memory) Each(after int64, f func(*metric.Snapshot) error) error {
	for _, s := range m {
		if s.Wall > after {
			if err := f(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// What is missing before the first tick of a mailbox is told once: it is missed,
// or in the hole of the numbers, though the tick itself says that it was missed.
func TestWhatIsMissingBeforeTheMailboxCountsOnce(t *testing.T) {
	run := &metric.Run{ID: [16]byte{1}}
	for name, c := range map[string]struct {
		wall         int64
		missed       uint64
		past         bool
		seq, reports uint64
	}{
		"no past":                        {150, 2, false, 12, 0},
		"a past that lost some":          {150, 2, true, 12, 0},
		"a past that lost nothing":       {130, 2, true, 8, 2},
		"nothing missing":                {110, 0, true, 8, 0},
		"nothing missing and no past":    {110, 0, false, 8, 0},
		"lost by the past, not the loop": {130, 0, true, 10, 0},
	} {
		live := &metric.Snapshot{Run: run, Seq: 1, Wall: c.wall * 1e6, Interval: 10e6, Missed: c.missed}
		a := &Agent{run: run}
		if c.past {
			kept := *live
			a.SetBackfill(func(time.Duration) Backfill { return memory{&kept} })
		}
		s := &stream{sub: &Subscription{out: make(chan *metric.Snapshot, 1)}}
		live = a.catchUp(wish{interval: 10 * time.Millisecond, run: run.ID, since: 7, after: 100e6}, s, live, nil)
		if seq := live.Seq + s.base; seq != c.seq || live.Missed != c.reports {
			t.Errorf("%s: after tick 7 comes %d with %d missed, want %d with %d", name, seq, live.Missed, c.seq, c.reports)
		}
	}
}

// A mailbox that is emptied gives its last tick, with what was read since the
// one that is given back.
func TestLatestOfAMailbox(t *testing.T) {
	s := &Subscription{out: make(chan *metric.Snapshot, 3)}
	a, b := newFake("a").schema, newFake("b").schema
	old := &metric.Snapshot{Seq: 1, Frames: []metric.Frame{{Schema: a, Values: []uint64{1}}, {Schema: b, Values: []uint64{1}}}}
	for seq := range uint64(3) {
		s.out <- &metric.Snapshot{Seq: 2 + seq, Frames: []metric.Frame{{Schema: a, Values: []uint64{2 + seq}}}}
	}
	got := s.latest(old)
	va, _ := frame(got, "a")
	vb, ok := frame(got, "b")
	if got.Seq != 4 || va != 4 || vb != 1 || !ok || len(got.Frames) != 2 || len(s.free) != 3 {
		t.Errorf("tick %d with a %d and b %d, %d frames; %d released", got.Seq, va, vb, len(got.Frames), len(s.free))
	}
	if s.latest(got) != got {
		t.Error("of an empty mailbox it is another")
	}
}
