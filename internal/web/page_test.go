// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
	"rezolus/internal/query"
	"rezolus/internal/store"
)

// world is a server over data whose rates are known.
type world struct {
	server *httptest.Server
	window *store.Window
	mode   Mode
	down   atomic.Bool // the server answers nothing
	seq    uint64
	values []uint64
	schema *metric.Schema
	first  int64
	clock  func() *Clock // nil: time is everybody's
}

// rates is what each series grows by in a second.
var rates = []struct {
	desc  metric.Desc
	label string
	rate  uint64
}{
	{metric.Desc{Name: "cpu_usage", Keys: []string{"state"}}, "user", 500e6},
	{metric.Desc{Name: "cpu_usage", Keys: []string{"state"}}, "system", 250e6},
	{metric.Desc{Name: "cpu_usage", Keys: []string{"state"}}, "idle", 1250e6},
	{metric.Desc{Name: "scheduler_context_switch", Keys: []string{"kind"}}, "voluntary", 1000},
	{metric.Desc{Name: "syscall", Keys: []string{"op"}}, "write", 101},
	{metric.Desc{Name: "cgroup_cpu_usage", Keys: []string{"name"}}, "/web.slice", 250e6},
	{metric.Desc{Name: "cgroup_cpu_usage", Keys: []string{"name"}}, "/db.slice", 125e6},
}

func newWorld(t *testing.T, mode Mode) *world {
	t.Helper()
	return newWorldAt(t, mode, time.Now())
}

// newWorldAt has data of the 130 seconds up to a time.
func newWorldAt(t *testing.T, mode Mode, now time.Time) *world {
	t.Helper()
	w := &world{window: store.NewWindow(8 << 20), mode: mode}
	descs := map[string]*metric.Desc{}
	var series []metric.Series
	for _, r := range rates {
		d := descs[r.desc.Name]
		if d == nil {
			d = &metric.Desc{Name: r.desc.Name, Kind: metric.Counter, Keys: r.desc.Keys}
			descs[d.Name] = d
		}
		series = append(series, metric.Series{Desc: d, Values: []string{r.label}})
	}
	series = append(series, metric.Series{Desc: &metric.Desc{Name: "scheduler_runqueue_latency", Kind: metric.Histogram, Power: hist.Default}})
	var err error
	if w.schema, err = metric.NewSchema("test", series); err != nil {
		t.Fatal(err)
	}
	w.values = make([]uint64, w.schema.Words)
	w.first = now.Add(-130 * time.Second).Truncate(time.Second).UnixNano()
	for range 130 {
		w.tick(t)
	}
	status := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = rw.Write([]byte(`{"samplers":[{"name":"cpu_migrations","state":"disabled","reason":"switched off in the configuration"}]}`))
	})
	handler := New(Options{
		Page: func() Page {
			first, last := w.window.Bounds()
			p := Page{Mode: w.mode, Title: "x.rzr", Host: "testhost", Kernel: "6.1", Version: "test", First: first, Last: last, Interval: time.Second}
			if w.clock != nil {
				p.Clock = w.clock()
			}
			return p
		},
		API: query.API(query.New(query.Options{}), w.window, query.BuildInfo{}), Status: status, Listen: "127.0.0.1:0",
	})
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.down.Load() {
			http.Error(rw, "down", http.StatusInternalServerError)
			return
		}
		handler.ServeHTTP(rw, r)
	}))
	t.Cleanup(w.server.Close)
	return w
}

// tick adds a second of the known rates: 40 waits of 1,000 ns and 2 of a
// million to the histogram.
func (w *world) tick(t *testing.T) {
	w.seq++
	for i, r := range rates {
		w.values[i] += r.rate
	}
	buckets := w.values[len(rates):]
	buckets[hist.Default.Index(1000)] += 40
	buckets[hist.Default.Index(1_000_000)] += 2
	at := w.first + int64(w.seq)*int64(time.Second)
	s := &metric.Snapshot{Run: &metric.Run{}, Seq: w.seq, Wall: at, Mono: at, Interval: int64(time.Second),
		Frames: []metric.Frame{{Schema: w.schema, Values: w.values, Begin: at, End: at}}}
	if err := w.window.Put(s); err != nil {
		t.Error(err)
	}
}

// live adds ticks as time passes.
func (w *world) live(t *testing.T) {
	stop := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				for w.first+int64(w.seq+1)*int64(time.Second) < time.Now().UnixNano() {
					w.tick(t)
				}
			}
		}
	})
	t.Cleanup(func() { close(stop); ended.Wait() })
}

// browser opens the page in a real Chromium and fails the test for anything
// it says on its console and any request that leaves the server.
func browser(t *testing.T, w *world, width, height int) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(width, height),
		chromedp.WSURLReadTimeout(time.Minute), // a busy machine starts a browser slowly
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(cancel)
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page threw: %s", e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			t.Errorf("the page said %s: %v", e.Type, e.Args)
		case *network.EventRequestWillBeSent:
			if u, err := url.Parse(e.Request.URL); err != nil || u.Scheme != "data" && !strings.HasPrefix(e.Request.URL, w.server.URL) {
				t.Errorf("the page asks %s", e.Request.URL)
			}
		}
	})
	do(t, ctx, network.Enable(), chromedp.Navigate(w.server.URL))
	return ctx
}

func do(t *testing.T, ctx context.Context, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// await waits until a JavaScript expression is true: long, since on a busy
// machine Chromium gets little of it.
func await(t *testing.T, ctx context.Context, expr string) {
	t.Helper()
	if err := chromedp.Run(ctx, chromedp.Poll(expr, nil, chromedp.WithPollingTimeout(45*time.Second))); err != nil {
		var text string
		_ = chromedp.Run(ctx, chromedp.Evaluate(`document.body.textContent.replaceAll(/\s+/g, ' ')`, &text))
		t.Fatalf("the page does not come to %s: %v\n%s", expr, err, text)
	}
}

// screenshot keeps a picture where REZOLUS_SCREENSHOTS names a folder.
func screenshot(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	dir := os.Getenv("REZOLUS_SCREENSHOTS")
	if dir == "" {
		return
	}
	var png []byte
	do(t, ctx, chromedp.Sleep(300*time.Millisecond), chromedp.FullScreenshot(&png, 100))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		t.Fatal(err)
	}
}

// inked is an expression: how many pixels of a panel's canvas are painted.
func inked(panel string) string {
	return fmt.Sprintf(`(() => { const c = document.querySelector('#%s canvas'); if (!c) return 0;
		const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0;
		for (let i = 3; i < d.length; i += 4) if (d[i]) n++; return n; })()`, panel)
}

func text(t *testing.T, ctx context.Context, expr string) string {
	t.Helper()
	var s any
	do(t, ctx, chromedp.Evaluate(expr, &s))
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestPageShowsWhatIsMeasured(t *testing.T) {
	w := newWorld(t, Live)
	w.live(t)
	ctx := browser(t, w, 1300, 1400)
	await(t, ctx, `document.querySelector('#state').dataset.state === 'live'`)
	for _, panel := range []string{"cpu", "runqueue", "runqueue-quantiles", "switches", "syscalls"} {
		await(t, ctx, inked(panel)+" > 2000")
	}
	if got := text(t, ctx, `[...document.querySelectorAll('#cpu .u-series .u-label')].slice(1).map(e => e.textContent).join()`); got != `"user,system"` {
		t.Errorf("the lines of CPU are %s", got)
	}
	// The cursor says values: half of one CPU in user mode.
	hover := `(() => { const o = document.querySelector('#%s .u-over'), r = o.getBoundingClientRect();
		o.dispatchEvent(new MouseEvent('mousemove', {clientX: r.left + r.width * 0.6, clientY: r.top + 50, bubbles: true})); })()`
	do(t, ctx, chromedp.Evaluate(fmt.Sprintf(hover, "cpu"), nil))
	await(t, ctx, `document.querySelector('#cpu .u-legend').textContent.includes('user50 %')`)
	await(t, ctx, `document.querySelector('#syscalls .u-legend').textContent.includes('101/s')`) // synced
	await(t, ctx, `document.querySelector('#runqueue .note').textContent.startsWith('p50 993 ns')`)
	// A disabled sampler is said to be so, and not drawn as zero.
	do(t, ctx, chromedp.ScrollIntoView("#cgroups"))
	await(t, ctx, `document.querySelector('#migrations .message').textContent === 'Not measured: sampler cpu_migrations is disabled: switched off in the configuration'`)
	await(t, ctx, `[...document.querySelectorAll('#cgroups .bar')].map(b => b.textContent).join() === '/web.slice25 %,/db.slice12.5 %'`)
	do(t, ctx, chromedp.ScrollIntoView("#cpu"))
	before := text(t, ctx, `document.querySelector('#shown').textContent`)
	await(t, ctx, `document.querySelector('#shown').textContent !== `+before)
	screenshot(t, ctx, "light")
	do(t, ctx, chromedp.Click("#theme"))
	await(t, ctx, `document.documentElement.dataset.theme === 'dark'`)
	await(t, ctx, inked("runqueue")+" > 2000")
	screenshot(t, ctx, "dark")
}

// A replay of what was long ago goes sixty times as fast as time: the page goes
// with it, and stands still when it is over.
func TestPageFollowsAReplay(t *testing.T) {
	w := newWorldAt(t, Live, time.Now().Add(-24*time.Hour))
	began, over := time.Now(), atomic.Int64{}
	now := func() int64 {
		if at := over.Load(); at != 0 {
			return at
		}
		return w.first + 130e9 + int64(time.Since(began))*60
	}
	w.clock = func() *Clock {
		if over.Load() != 0 {
			return &Clock{Now: now()}
		}
		return &Clock{Now: now(), Speed: 60}
	}
	stop := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			for w.first+int64(w.seq+1)*1e9 <= now() {
				w.tick(t)
			}
			select {
			case <-stop:
				over.Store(w.first + int64(w.seq)*1e9)
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	ctx := browser(t, w, 1300, 1400)
	await(t, ctx, `document.querySelector('#state').textContent === 'replay ×60'`)
	await(t, ctx, `document.querySelector('#ranges [aria-pressed=true]').dataset.seconds === '3600'`)
	await(t, ctx, inked("cpu")+" > 2000")
	// What is shown ends where the replay is, and has values there.
	hover := `(() => { const o = document.querySelector('#syscalls .u-over'), r = o.getBoundingClientRect();
		o.dispatchEvent(new MouseEvent('mousemove', {clientX: r.right - 4, clientY: r.top + 50, bubbles: true}));
		return document.querySelector('#syscalls .u-legend').textContent.includes('101/s'); })()`
	before := text(t, ctx, `document.querySelector('#shown').textContent`)
	await(t, ctx, `document.querySelector('#shown').textContent !== `+before)
	await(t, ctx, hover)
	screenshot(t, ctx, "replay")
	close(stop)
	ended.Wait()
	await(t, ctx, `document.querySelector('#state').textContent === 'replay, over'`)
	last := time.Unix(0, over.Load()).UTC().Format(time.RFC3339Nano)
	await(t, ctx, fmt.Sprintf(`document.querySelector('#shown').textContent.endsWith(new Date(Math.floor(Date.parse(%q) / 10e3) * 10e3).toLocaleTimeString())`, last))
	await(t, ctx, hover)
}

func TestDraggingZoomsEverything(t *testing.T) {
	w := newWorld(t, Live)
	w.live(t)
	ctx := browser(t, w, 1300, 900)
	await(t, ctx, inked("cpu")+" > 2000")
	var box struct{ X, Y, Width float64 }
	do(t, ctx, chromedp.Evaluate(`document.querySelector('#cpu .u-over').getBoundingClientRect().toJSON()`, &box))
	mouse := func(kind input.MouseType, at float64) chromedp.Action {
		return input.DispatchMouseEvent(kind, box.X+box.Width*at, box.Y+40).WithButton(input.Left).WithClickCount(1)
	}
	do(t, ctx, mouse(input.MouseMoved, 0.3), mouse(input.MousePressed, 0.3), mouse(input.MouseMoved, 0.5), mouse(input.MouseMoved, 0.6),
		mouse(input.MouseReleased, 0.6))
	await(t, ctx, `document.querySelector('#state').dataset.state === 'paused'`)
	still := text(t, ctx, `document.querySelector('#shown').textContent`)
	do(t, ctx, chromedp.Sleep(1500*time.Millisecond))
	if now := text(t, ctx, `document.querySelector('#shown').textContent`); now != still {
		t.Errorf("a zoomed page moves from %s to %s", still, now)
	}
	do(t, ctx, chromedp.Click("#pause"))
	await(t, ctx, `document.querySelector('#state').dataset.state === 'live'`)
}

func TestQueryBox(t *testing.T) {
	ctx := browser(t, newWorld(t, File), 1300, 900)
	await(t, ctx, inked("cpu")+" > 2000")
	ask := func(expr string) {
		do(t, ctx, chromedp.SetValue("#expr", expr), chromedp.Click("#query button"))
	}
	ask(`rate(syscall{op="write"}[5s])`)
	await(t, ctx, `document.querySelector('#answer td.value')?.textContent === '101'`)
	ask(`rate(syscall{op="write"`)
	await(t, ctx, `document.querySelector('#answer .error')?.textContent.includes('parse error')`)
	screenshot(t, ctx, "error")
	ask(`rate(scheduler_runqueue_latency[5s])`)
	await(t, ctx, `document.querySelector('#answer .u-legend')?.textContent.includes('p99')`)
	ask(`no_such_metric`)
	await(t, ctx, `document.querySelector('#answer').textContent === 'No series'`)
}

func TestAFileIsShownWhole(t *testing.T) {
	ctx := browser(t, newWorld(t, File), 1300, 900)
	await(t, ctx, `document.querySelector('#state').dataset.state === 'file' && document.querySelector('#host').textContent === 'x.rzr'`)
	await(t, ctx, inked("runqueue")+" > 2000")
	screenshot(t, ctx, "file")
}

func TestALostConnectionIsSaidAndComesBack(t *testing.T) {
	w := newWorld(t, Live)
	w.live(t)
	ctx := browser(t, w, 1300, 900)
	await(t, ctx, inked("cpu")+" > 2000")
	w.down.Store(true)
	await(t, ctx, `document.querySelector('#state').textContent.startsWith('connection lost since')`)
	w.down.Store(false)
	await(t, ctx, `document.querySelector('#state').dataset.state === 'live'`)
}

func TestNarrow(t *testing.T) {
	ctx := browser(t, newWorld(t, File), 400, 900)
	do(t, ctx, chromedp.EmulateViewport(400, 900))
	await(t, ctx, inked("cpu")+" > 1000")
	await(t, ctx, `document.documentElement.scrollWidth <= 400`)
	screenshot(t, ctx, "narrow")
}
