// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// fabrication is a recording of which everything is known:
//
//   - requests{op="read"} counts 7 a tick and requests{op="write"} 3, from the
//     host's boot, an hour before the first tick; load is a tenth of the tick's
//     number; latency has one 1000 more with each tick
//   - source slow has every tenth tick: temperature is 40 and the tick's number
type fabrication struct {
	host, run string
	start     time.Time
	interval  time.Duration
	ticks     int
	skip      int // this tick is missing
	gap       int // before this tick is a gap of five
	rows      bool
	killed    bool
	meta      map[string]string
	events    []string // each a second after the one before
}

var (
	fabRequests = &metric.Desc{Name: "requests", Help: "requests that were served", Kind: metric.Counter, Keys: []string{"op"}, Sampler: "fab"}
	fabLoad     = &metric.Desc{Name: "load", Help: "load", Kind: metric.Gauge, Float: true, Sampler: "fab"}
	fabLatency  = &metric.Desc{Name: "latency", Help: "latency", Unit: metric.Nanoseconds, Kind: metric.Histogram, Power: hist.Default, Sampler: "fab_latency"}
	fabTemp     = &metric.Desc{Name: "temperature", Help: "temperature", Unit: "celsius", Kind: metric.Gauge, Sampler: "fab_slow"}
)

var fabBooted = time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC)

func (f *fabrication) write(path string) error {
	w, err := store.Create(osFS, path, store.WriterOptions{Rows: f.rows, Sync: -1,
		EncoderOptions: store.EncoderOptions{Interval: f.interval, Meta: f.meta}})
	if err != nil {
		return err
	}
	run := &metric.Run{Host: f.host, Kernel: "6.1.0", Arch: "amd64", Version: "test", Started: f.start.UnixNano()}
	id := sha256.Sum256([]byte(f.host + f.run))
	copy(run.ID[:], id[:])
	boot := f.start.Add(-time.Hour).UnixNano()
	fast, err := metric.NewSchema("fast", []metric.Series{
		{Desc: fabRequests, Values: []string{"read"}, Start: boot}, {Desc: fabRequests, Values: []string{"write"}, Start: boot},
		{Desc: fabLoad}, {Desc: fabLatency, Start: boot}})
	if err != nil {
		return err
	}
	slow, err := metric.NewSchema("slow", []metric.Series{{Desc: fabTemp}})
	if err != nil {
		return err
	}
	seq := uint64(0)
	for i := range f.ticks {
		wall := f.start.Add(time.Duration(i) * f.interval).UnixNano()
		seq++
		if f.skip > 0 && i == f.skip {
			continue
		}
		if f.gap > 0 && i >= f.gap && i < f.gap+5 {
			if i == f.gap {
				err = w.WriteGap(store.Gap{From: wall, To: wall + 4*int64(f.interval), Ticks: 5, Reason: "the agent was away"})
			}
			if err != nil {
				return err
			}
			continue
		}
		mono := wall - fabBooted.UnixNano() // all of them are of one life of the machine
		words := make([]uint64, fast.Words)
		words[0], words[1], words[2] = uint64(1000+7*i), uint64(500+3*i), math.Float64bits(float64(i)/10)
		words[3+fabLatency.Power.Index(1000)] = uint64(i + 1)
		s := metric.Snapshot{Run: run, Seq: seq, Wall: wall, Mono: mono, Interval: int64(f.interval),
			Frames: []metric.Frame{{Schema: fast, Begin: mono + 1000, End: mono + 2000, Values: words}}}
		if i%10 == 0 {
			s.Frames = append(s.Frames, metric.Frame{Schema: slow, Begin: mono + 3000, End: mono + 4000, Values: []uint64{uint64(40 + i)}})
		}
		if err := w.Put(&s); err != nil {
			return err
		}
	}
	for i, text := range f.events {
		if err := w.WriteEvent(store.Event{Time: f.start.Add(time.Duration(i+1) * time.Second).UnixNano(), Text: text}); err != nil {
			return err
		}
	}
	if f.killed {
		return w.Abandon()
	}
	return w.Close()
}

// fabricate writes a recording: fabricate FILE [key=value...].
func fabricate(ts *testscript.TestScript, _ bool, args []string) {
	f := &fabrication{host: "alpha", start: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), interval: 100 * time.Millisecond,
		ticks: 100, meta: map[string]string{"team": "blue"}}
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		number, err := strconv.Atoi(value)
		switch key {
		case "host":
			f.host, err = value, nil
		case "run":
			f.run, err = value, nil
		case "start":
			f.start, err = time.Parse(time.RFC3339, value)
		case "interval":
			f.interval, err = time.ParseDuration(value)
		case "event":
			f.events, err = append(f.events, strings.ReplaceAll(value, "_", " ")), nil
		case "ticks":
			f.ticks = number
		case "skip":
			f.skip = number
		case "gap":
			f.gap = number
		case "rows":
			f.rows = number == 1
		case "killed":
			f.rows, f.killed = number == 1, number == 1
		default:
			ts.Fatalf("fabricate: %q", arg)
		}
		ts.Check(err)
	}
	ts.Check(f.write(ts.MkAbs(args[0])))
}

// flip changes a byte of a file: flip FILE OFFSET. A negative one counts from
// the end.
func flip(ts *testscript.TestScript, _ bool, args []string) {
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_RDWR, 0)
	ts.Check(err)
	defer f.Close()
	at, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	if at < 0 {
		info, err := f.Stat()
		ts.Check(err)
		at += info.Size()
	}
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	ts.Check(err)
	b[0] ^= 0x10
	_, err = f.WriteAt(b[:], at)
	ts.Check(err)
}
