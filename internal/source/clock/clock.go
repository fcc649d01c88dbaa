// SPDX-License-Identifier: Apache-2.0

// Package clock reads how the kernel keeps the time of day: how far it may be
// off, whether something disciplines it, and by which counter it goes.
package clock

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

const sampler = "clock"

func gauge(name string, unit metric.Unit, help string) *metric.Desc {
	return &metric.Desc{Name: "clock_" + name, Help: help, Unit: unit, Kind: metric.Gauge, Sampler: sampler}
}

func float(name string, unit metric.Unit, help string) *metric.Desc {
	d := gauge(name, unit, help)
	d.Float = true
	return d
}

func counter(name, help string) *metric.Desc {
	d := gauge(name, metric.None, help)
	d.Kind = metric.Counter
	return d
}

const ratio = metric.Unit("ratio")

// micro and nano are nanoseconds in the units of timex; freq is what one in
// its frequencies is: 2^-16 parts per million (adjtimex(2)).
const (
	micro = 1000
	freq  = 1.0 / (1 << 16) / 1e6
)

// row is a metric and where it is in what adjtimex(2) fills.
type row struct {
	desc *metric.Desc
	of   func(t *unix.Timex) int64
	by   float64 // floats only: the word is of times by
}

// table has what there always is. The kernel keeps the errors as the program
// that disciplines the clock told it, and lets the maximum grow by 500 parts
// per million; it does so too when there is no such program.
var table = []row{
	{desc: gauge("synchronized", metric.None, "1 if something keeps the clock in step with a reference, else 0"), of: synchronized},
	{desc: gauge("offset", metric.Nanoseconds, "correction of the time of day that is yet to be made"),
		of: func(t *unix.Timex) int64 { return fine(t, int64(t.Offset)) }},
	{desc: gauge("max_error", metric.Nanoseconds, "bound of the error of the time of day"),
		of: func(t *unix.Timex) int64 { return int64(t.Maxerror) * micro }},
	{desc: gauge("estimated_error", metric.Nanoseconds, "estimate of the error of the time of day"),
		of: func(t *unix.Timex) int64 { return int64(t.Esterror) * micro }},
	{desc: float("frequency_offset", ratio, "correction of the clock's frequency"),
		of: func(t *unix.Timex) int64 { return int64(t.Freq) }, by: freq},
	{desc: gauge("status", metric.None, "bits STA_ of adjtimex(2)"), of: func(t *unix.Timex) int64 { return int64(t.Status) }},
	{desc: gauge("tai_offset", metric.Nanoseconds, "atomic time less the time of day, 0 if nothing has told the kernel"),
		of: func(t *unix.Timex) int64 { return int64(t.Tai) * 1e9 }},
	{desc: gauge("tick", metric.Nanoseconds, "what the clock advances by at each 100th of a second"),
		of: func(t *unix.Timex) int64 { return int64(t.Tick) * micro }},
	{desc: gauge("loop_time_constant", metric.None, "time constant of the kernel's phase-locked loop, as a power of two"),
		of: func(t *unix.Timex) int64 { return int64(t.Constant) }},
}

// ppsTable has what there is while a signal of pulses per second disciplines
// the clock.
var ppsTable = []row{
	{desc: float("pps_frequency", ratio, "offset of the clock's frequency by the pulses"),
		of: func(t *unix.Timex) int64 { return int64(t.Ppsfreq) }, by: freq},
	{desc: float("pps_stability", ratio, "average change of the frequency by the pulses"),
		of: func(t *unix.Timex) int64 { return int64(t.Stabil) }, by: freq},
	{desc: gauge("pps_jitter", metric.Nanoseconds, "dispersion of the pulses"),
		of: func(t *unix.Timex) int64 { return fine(t, int64(t.Jitter)) }},
	{desc: gauge("pps_interval", metric.Nanoseconds, "time over which the pulses are averaged"),
		of: func(t *unix.Timex) int64 { return int64(time.Second) << (t.Shift & 31) }},
	{desc: counter("pps_calibrations", "intervals of pulses that were averaged"), of: func(t *unix.Timex) int64 { return int64(t.Calcnt) }},
	{desc: counter("pps_calibration_errors", "intervals of pulses in which the frequency was too far off"),
		of: func(t *unix.Timex) int64 { return int64(t.Errcnt) }},
	{desc: counter("pps_jitter_exceeded", "pulses that came too far from when they were due"),
		of: func(t *unix.Timex) int64 { return int64(t.Jitcnt) }},
	{desc: counter("pps_stability_exceeded", "intervals of pulses in which the frequency changed too much"),
		of: func(t *unix.Timex) int64 { return int64(t.Stbcnt) }},
}

// clockSource is 1, so that which it is can be joined with and its change be
// seen.
var clockSource = &metric.Desc{Name: "clock_source", Help: "1 for the hardware counter that the clock goes by",
	Kind: metric.Gauge, Keys: []string{"source"}, Sampler: sampler}

func synchronized(t *unix.Timex) int64 {
	if t.Status&unix.STA_UNSYNC != 0 {
		return 0
	}
	return 1
}

// fine is v of t in nanoseconds: those are its unit or microseconds are.
func fine(t *unix.Timex, v int64) int64 {
	if t.Status&unix.STA_NANO != 0 {
		return v
	}
	return v * micro
}

// Clock is the source of adjtimex(2) and of the current clock source.
type Clock struct {
	current *source.File // nil: the machine does not tell
	timex   unix.Timex   // as it was read last
	rows    []row        // of the schema
	pps     bool         // of the schema
	source  []byte       // of the schema
	schema  *metric.Schema
}

// New opens the clock sources below dir, /sys/devices/system/clocksource.
func New(dir string) (*Clock, error) {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
			return nil, source.Unsupported("adjtimex: %w; a filter of system calls denies it even without a change", err)
		}
		return nil, fmt.Errorf("adjtimex: %w", err)
	}
	c := &Clock{}
	if f, err := source.OpenFile(filepath.Join(dir, "clocksource0/current_clocksource")); err == nil {
		c.current = f
	}
	return c, nil
}

// Name is "clock".
func (c *Clock) Name() string { return sampler }

// Read fills f, without allocating while the clock source is the same.
func (c *Clock) Read(f *metric.Frame) error {
	var name []byte
	c.timex = unix.Timex{} // no modes: nothing is set
	f.Begin = host.Mono()
	_, err := unix.Adjtimex(&c.timex)
	if err != nil {
		return fmt.Errorf("adjtimex: %w", err)
	}
	if c.current != nil {
		if name, err = c.current.Read(); err != nil {
			return err
		}
	}
	f.End = host.Mono()
	return c.fill(f, &c.timex, name)
}

// fill fills f with t and the name of the clock source, which may be empty.
func (c *Clock) fill(f *metric.Frame, t *unix.Timex, name []byte) error {
	pps := t.Status&(unix.STA_PPSFREQ|unix.STA_PPSTIME) != 0
	if c.schema == nil || pps != c.pps || string(name) != string(c.source) {
		if err := c.rebuild(pps, name); err != nil {
			return err
		}
	}
	f.Schema, f.Lost = c.schema, 0
	f.Resize(c.schema.Words)
	to := f.Values[:0]
	for i := range c.rows {
		v := c.rows[i].of(t)
		if c.rows[i].desc.Float {
			to = append(to, math.Float64bits(float64(v)*c.rows[i].by))
			continue
		}
		to = append(to, uint64(v))
	}
	if len(name) > 0 {
		to = append(to, 1)
	}
	return nil
}

func (c *Clock) rebuild(pps bool, name []byte) error {
	c.pps, c.source, c.rows = pps, slices.Clone(name), table
	if pps {
		c.rows = slices.Concat(table, ppsTable)
	}
	var series []metric.Series
	for _, r := range c.rows {
		s := metric.Series{Desc: r.desc}
		if r.desc.Kind == metric.Counter {
			s.Start = host.BootTime()
		}
		series = append(series, s)
	}
	if len(name) > 0 {
		series = append(series, metric.Series{Desc: clockSource, Values: []string{trim(name)}})
	}
	schema, err := metric.NewSchema(c.Name(), series)
	c.schema = schema
	return err
}

// trim is what a file of sysfs says, without the line's end.
func trim(text []byte) string {
	if n := len(text); n > 0 && text[n-1] == '\n' {
		text = text[:n-1]
	}
	return string(text)
}

// Close closes the file.
func (c *Clock) Close() error {
	if c.current == nil {
		return nil
	}
	return c.current.Close()
}

// Samplers are the sampler of the clock. A read takes 3 us (BenchmarkRead),
// and the kernel brings the errors up to date once a second.
func Samplers() []source.Sampler {
	var descs []*metric.Desc
	for _, r := range slices.Concat(table, ppsTable) {
		descs = append(descs, r.desc)
	}
	const dir = "/sys/devices/system/clocksource"
	return []source.Sampler{{Name: sampler, Reads: "adjtimex(2), " + dir + "/clocksource0/current_clocksource",
		Every: time.Second, Descs: append(descs, clockSource),
		Open: func() (source.Source, error) { return New(dir) }}}
}
