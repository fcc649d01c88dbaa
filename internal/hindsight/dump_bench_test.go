// SPDX-License-Identifier: Apache-2.0

package hindsight

import (
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
	"rezolus/internal/ring"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

var ringsFlag = flag.String("rings", "", "a directory with the rings to dump, main and fine; made where it is missing")

// busyHost makes ticks of some 2,000 series of which about 700 words change.
type busyHost struct {
	r *rand.Rand
	s metric.Snapshot
}

func newBusyHost(b *testing.B, interval time.Duration) *busyHost {
	b.Helper()
	h := &busyHost{r: rand.New(rand.NewPCG(1, 2))}
	h.s = metric.Snapshot{Run: &metric.Run{ID: [16]byte{1}, Boot: [16]byte{2}, Host: "bench"},
		Wall: time.Now().Add(-24 * time.Hour).Truncate(time.Second).UnixNano(), Mono: second, Interval: int64(interval)}
	add := func(source string, d *metric.Desc, n int) {
		var series []metric.Series
		for i := range n {
			series = append(series, metric.Series{Desc: d, Values: []string{fmt.Sprint(i)}, Start: h.s.Wall})
		}
		schema, err := metric.NewSchema(source, series)
		if err != nil {
			b.Fatal(err)
		}
		f := metric.Frame{Schema: schema}
		f.Resize(schema.Words)
		h.s.Frames = append(h.s.Frames, f)
	}
	for i := range 12 {
		source := fmt.Sprint("source", i)
		add(source, &metric.Desc{Name: source + "_events", Kind: metric.Counter, Keys: []string{"id"}}, 155)
	}
	add("gauges", &metric.Desc{Name: "level", Kind: metric.Gauge, Unit: metric.Bytes, Keys: []string{"id"}}, 100)
	add("latencies", &metric.Desc{Name: "latency", Kind: metric.Histogram, Unit: metric.Nanoseconds, Power: hist.Default, Keys: []string{"id"}}, 40)
	return h
}

// next is the next tick. share of what changes in a second changes in it.
func (h *busyHost) next(share float64) *metric.Snapshot {
	h.s.Seq++
	h.s.Wall += h.s.Interval
	h.s.Mono += h.s.Interval
	n := func(mean float64) int { return int(mean*share + h.r.Float64()) }
	at := h.s.Mono
	for i := range h.s.Frames {
		f := &h.s.Frames[i]
		f.Begin = at + h.r.Int64N(2000)
		f.End = f.Begin + 5000 + h.r.Int64N(3000)
		at = f.End
		switch f.Schema.Source {
		case "latencies":
			for j := range 40 {
				for range n(12) {
					v := math.Exp(9 + float64(j)/10 + 1.2*h.r.NormFloat64())
					f.Values[496*j+hist.Default.Index(uint64(v))]++
				}
			}
		case "gauges":
			for range n(40) {
				f.Values[h.r.IntN(100)] = uint64(1<<30 + h.r.IntN(1<<20)*4096)
			}
		default:
			for j := range n(60) {
				f.Values[j] += 1 + h.r.Uint64N(uint64(10)<<(j/6))
			}
		}
	}
	return &h.s
}

// dayOfRings are a ring of a day at a second and one of ten minutes at ten
// milliseconds, served, and the time of the first one's oldest tick.
func dayOfRings(b *testing.B) (web *httptest.Server, first int64) {
	b.Helper()
	dir := *ringsFlag
	if dir == "" {
		dir = b.TempDir()
	}
	s := &Server{Dumps: NewDumps(vfs.OS, filepath.Join(dir, "dumps"), 2, 1<<30)}
	for _, o := range []struct {
		name     string
		interval time.Duration
		age      time.Duration
	}{{"main", time.Second, 24 * time.Hour}, {"fine", 10 * time.Millisecond, 10 * time.Minute}} {
		path := filepath.Join(dir, o.name)
		_, err := os.Stat(path)
		k := New(Options{Name: o.name, Ring: ring.Options{Dir: path, Interval: o.interval, Age: o.age}})
		b.Cleanup(func() {
			if err := k.Close(); err != nil {
				b.Error(err)
			}
		})
		h := newBusyHost(b, o.interval)
		for n := 0; err != nil && n < int(o.age/o.interval); n++ {
			k.Put(h.next(o.interval.Seconds()))
			for n%100 == 0 && behind(b, path) { // in life it has a second each
				time.Sleep(time.Millisecond)
			}
		}
		k.Open()
		s.Keepers = append(s.Keepers, k)
	}
	mux := http.NewServeMux()
	for pattern, h := range s.Handlers() {
		mux.Handle(pattern, h)
	}
	web = httptest.NewServer(mux)
	b.Cleanup(web.Close)
	first, _ = s.Keepers[0].open.Load().Bounds()
	return web, first
}

// behind reports whether a ring has a log to seal.
func behind(b *testing.B, dir string) bool {
	b.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		b.Fatal(err)
	}
	sealing, err := filepath.Glob(filepath.Join(dir, "*"+store.Unfinished))
	if err != nil {
		b.Fatal(err)
	}
	return len(logs) > 2 || len(sealing) > 0
}

// fetch asks for a dump and returns how many bytes came.
func fetch(method, url string) (int64, error) {
	q, err := http.NewRequest(method, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s %s: %s", method, url, response.Status)
	}
	n, err := io.Copy(io.Discard, response.Body)
	return n, err
}

// BenchmarkDay dumps a day. It makes one first, which takes half a minute.
func BenchmarkDay(b *testing.B) {
	web, first := dayOfRings(b)
	b.Run("dump", func(b *testing.B) { benchDump(b, web.URL, first) })
	b.Run("ticks", func(b *testing.B) { benchTicks(b, web.URL) })
}

// benchDump times dumps over HTTP and into a file.
func benchDump(b *testing.B, url string, first int64) {
	hour := func(h float64) string { return stamp(first + int64(h*3600)*second) }
	for _, c := range []struct{ name, query string }{
		{"day", ""}, {"15m", "last=15m"}, {"5h-cut-twice", "start=" + hour(8.117) + "&end=" + hour(13.203)}, {"fine-10m", "ring=fine"},
	} {
		for verb, path := range map[string]string{"GET": "/dump?", "POST": "/dump/file?"} {
			b.Run(c.name+"/"+verb, func(b *testing.B) {
				before, least, bytes := cpuTime(b), time.Duration(math.MaxInt64), int64(0)
				for b.Loop() {
					began := time.Now()
					n, err := fetch(verb, url+path+c.query)
					if err != nil {
						b.Fatal(err)
					}
					bytes, least = max(bytes, n), min(least, time.Since(began))
				}
				b.ReportMetric(float64(least.Microseconds())/1000, "ms-least")
				b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N)/1e6, "ms-cpu")
				b.ReportMetric(float64(bytes)/1e6, "MB")
			})
		}
	}
}

// benchTicks takes ticks for a while, next to dumps and without, in turns, and
// counts those that were late by a whole interval.
func benchTicks(b *testing.B, url string) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)) // as the agent does
	for _, interval := range []time.Duration{10 * time.Millisecond, time.Millisecond} {
		for _, c := range []struct{ name, verb, path string }{
			{"GET-day", "GET", "/dump"}, {"GET-15m", "GET", "/dump?last=15m"}, {"POST-day", "POST", "/dump/file"}, {"POST-15m", "POST", "/dump/file?last=15m"},
		} {
			b.Run(fmt.Sprint(interval, "/", c.name), func(b *testing.B) {
				var missed, total [2]int
				dumps := 0
				for b.Loop() {
					for with := range 2 {
						var dump func() error
						if with == 1 {
							dump = func() error {
								dumps++
								_, err := fetch(c.verb, url+c.path)
								return err
							}
						}
						m, n := tickNextTo(b, interval, dump)
						missed[with], total[with] = missed[with]+m, total[with]+n
					}
				}
				for with, name := range []string{"without", "with"} {
					b.ReportMetric(1000*float64(missed[with])/float64(total[with]), "missed-of-1000-"+name)
				}
				b.ReportMetric(float64(dumps)/float64(b.N), "dumps")
			})
		}
	}
}

// tickNextTo ticks for two seconds, and dumps four times a second if it is to.
func tickNextTo(b *testing.B, interval time.Duration, dump func() error) (missed, total int) {
	b.Helper()
	var over atomic.Bool
	var busy sync.WaitGroup
	if dump != nil {
		busy.Go(func() {
			for next := time.Now(); !over.Load(); {
				if err := dump(); err != nil {
					b.Error(err)
					return
				}
				next = next.Add(250 * time.Millisecond)
				time.Sleep(time.Until(next))
			}
		})
	}
	busy.Go(func() {
		defer over.Store(true)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		missed, total = ticks(interval, 2*time.Second)
	})
	busy.Wait()
	return missed, total
}

// ticks sleeps from tick to tick, as the agent does, and counts those for
// which it woke too late.
func ticks(interval, length time.Duration) (missed, total int) {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // there always is one
	next := now.Nano() + int64(interval)
	for end := next + int64(length); next < end; next += int64(interval) {
		until := unix.NsecToTimespec(next)
		for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &until, nil) == unix.EINTR {
		}
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
		late := (now.Nano() - next) / int64(interval)
		missed, total = missed+int(late), total+1+int(late)
		next += late * int64(interval)
	}
	return missed, total
}

// cpuTime is the CPU time of the process in nanoseconds.
func cpuTime(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
