// SPDX-License-Identifier: Apache-2.0

// Package analyze draws conclusions from what was measured. Its first is the
// ledger: what is counted in two ways must agree, and by how much it does not
// is a metric.
package analyze

import (
	"math"
	"sync"

	"rezolus/internal/metric"
)

const ledgerSampler = "ledger"

var (
	residual = &metric.Desc{Name: "ledger_residual", Help: "difference between two ways to count the same, as a share of it, over the last minute",
		Kind: metric.Gauge, Float: true, Keys: []string{"check"}, Sampler: ledgerSampler}
	compared = &metric.Desc{Name: "ledger_compared", Help: "events, nanoseconds or bytes of the last minute that were counted in two ways and compared",
		Kind: metric.Gauge, Keys: []string{"check"}, Sampler: ledgerSampler}
)

var descs = []*metric.Desc{residual, compared}

// LedgerDescs describe the metrics of the ledger.
func LedgerDescs() []*metric.Desc { return descs }

// check is one equation: the sums of both sides grow alike.
type check struct {
	name        string
	left, right []string // names of metrics; of histograms the counts
	// elapsed: the right side is the time between two reads, on each CPU.
	elapsed bool
}

// checks are the equations. What a metric's absence leaves out is not checked.
var checks = []check{
	{name: "cpu_states_are_all_time", left: []string{"cpu_usage"}, elapsed: true},
	{name: "cgroup_switches_are_all_switches", left: []string{"cgroup_scheduler_context_switch"}, right: []string{"scheduler_context_switch"}},
	{name: "cgroup_waits_are_all_waits", left: []string{"cgroup_scheduler_runqueue_wait"}, right: []string{"scheduler_runqueue_wait"}},
	{name: "pairs_are_all_waits", left: []string{"cgroup_scheduler_interference"}, right: []string{"scheduler_runqueue_wait"}},
	{name: "cgroup_syscalls_are_all_syscalls", left: []string{"cgroup_syscall"}, right: []string{"syscall"}},
	{name: "cgroup_blockio_is_all_blockio", left: []string{"cgroup_blockio_bytes"}, right: []string{"blockio_bytes"}},
	{name: "cgroup_tcp_is_all_tcp", left: []string{"cgroup_tcp_bytes"}, right: []string{"tcp_bytes"}},
	{name: "cgroup_forks_are_all_forks", left: []string{"cgroup_process_forks"}, right: []string{"process_forks"}},
	{name: "stints_are_switches", left: []string{"scheduler_running"}, right: []string{"scheduler_context_switch"}},
	{name: "wakeups_are_sleeps", left: []string{"scheduler_wakeups"}, right: []string{"scheduler_offcpu"}},
	{name: "migrations_from_are_to", left: []string{"cpu_migrations"}, right: []string{"cgroup_cpu_migrations", "cgroup_cpu_migrations"}},
	{name: "blockio_issued_is_done", left: []string{"blockio_issued"}, right: []string{"blockio_operations", "blockio_requeues"}},
	{name: "blockio_timed_or_discarded", left: []string{"blockio_latency", "blockio_discarded_samples"}, right: []string{"blockio_operations"}},
	{name: "tcp_sizes_are_calls", left: []string{"tcp_size"}, right: []string{"tcp_packets"}},
	{name: "udp_sizes_are_calls", left: []string{"udp_size"}, right: []string{"udp_packets"}},
	{name: "network_sizes_are_packets", left: []string{"network_size"}, right: []string{"network_packets"}},
	{name: "hardirqs_are_timed", left: []string{"hardirq_latency"}, right: []string{"hardirq"}},
}

// Ledger compares. It satisfies the agent's interface of a source; what it
// compares is given to it by Observe.
type Ledger struct {
	mono func() int64

	mu      sync.Mutex
	tallies []tally // of the last minute, the oldest first
	books   []book  // of checks, by position
	shown   []bool  // that the schema has
	schema  *metric.Schema
}

// minute is how far apart the compared tallies are: /proc/stat counts in steps
// of 10 ms, which is a thousandth of ten seconds.
const minute = int64(60e9)

// book is how a check stands.
type book struct {
	there    bool
	residual float64
	compared uint64
}

// tally is what a snapshot counted, by metric.
type tally struct {
	sums map[string]uint64
	mono int64
	at   int64 // Mono at which cpu_usage was read
	cpus int
	run  *metric.Run
}

// NewLedger returns a ledger that has compared nothing. mono is
// CLOCK_MONOTONIC.
func NewLedger(mono func() int64) *Ledger {
	return &Ledger{mono: mono, books: make([]book, len(checks)), shown: make([]bool, len(checks))}
}

// Observe compares what was counted in the last minute. It allocates, and is
// meant for a snapshot every few seconds.
func (l *Ledger) Observe(s *metric.Snapshot) {
	now := count(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.tallies); n > 0 && (l.tallies[n-1].run != now.run || l.tallies[n-1].cpus != now.cpus) {
		l.tallies = nil // another life, or other CPUs
	}
	for len(l.tallies) > 1 && now.mono-l.tallies[1].mono >= minute {
		l.tallies = l.tallies[1:]
	}
	for i := range checks {
		l.books[i].there = false
		if len(l.tallies) > 0 {
			l.books[i].compare(&checks[i], &l.tallies[0], &now)
		}
	}
	l.tallies = append(l.tallies, now)
}

// count sums every metric of a snapshot over its series.
func count(s *metric.Snapshot) tally {
	t := tally{sums: map[string]uint64{}, run: s.Run, mono: s.Mono}
	for i := range s.Frames {
		f := &s.Frames[i]
		for j := range f.Schema.Series {
			e := &f.Schema.Series[j]
			if e.Desc.Kind == metric.Gauge {
				continue
			}
			var sum uint64
			for _, w := range f.Values[e.Off : e.Off+e.Desc.Words()] {
				sum += w
			}
			t.sums[e.Desc.Name] += sum
			if state, _ := e.Label("state"); e.Desc.Name == "cpu_usage" && state == "idle" {
				t.cpus++
				t.at = f.Begin
			}
		}
	}
	return t
}

// compare does one check over the time between two tallies. A series that
// ended took what it counted with it: then there is nothing to compare.
func (b *book) compare(c *check, before, now *tally) {
	left, ok := grown(c.left, before, now)
	right, also := grown(c.right, before, now)
	if c.elapsed {
		right, also = uint64(max(0, now.at-before.at))*uint64(now.cpus), now.at > before.at
	}
	if b.there = ok && also; !b.there {
		return
	}
	all, difference := max(left, right), max(left, right)-min(left, right)
	b.residual = 0
	if all > 0 {
		b.residual = float64(difference) / float64(all)
	}
	b.compared = all
}

// grown is by how much a side grew, and whether all of it was there both
// times.
func grown(names []string, before, now *tally) (sum uint64, ok bool) {
	for _, name := range names {
		b, had := before.sums[name]
		n, has := now.sums[name]
		if !had || !has || n < b {
			return 0, false
		}
		sum += n - b
	}
	return sum, true
}

// Name is "ledger".
func (l *Ledger) Name() string { return ledgerSampler }

// Close has nothing to close.
func (l *Ledger) Close() error { return nil }

// Read tells how the checks stand that could be done last.
func (l *Ledger) Read(f *metric.Frame) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := l.schema == nil
	for i := range l.books {
		if l.shown[i] != l.books[i].there {
			l.shown[i], changed = l.books[i].there, true
		}
	}
	if changed {
		if err := l.rebuild(); err != nil {
			return err
		}
	}
	f.Schema, f.Lost = l.schema, 0
	f.Resize(l.schema.Words)
	f.Begin = l.mono()
	to := f.Values[:0]
	for _, d := range descs {
		for i := range l.books {
			if l.shown[i] {
				to = append(to, l.books[i].word(d))
			}
		}
	}
	f.End = l.mono()
	return nil
}

func (b *book) word(d *metric.Desc) uint64 {
	if d == residual {
		return math.Float64bits(b.residual)
	}
	return b.compared
}

func (l *Ledger) rebuild() error {
	var series []metric.Series
	for _, d := range descs {
		for i, c := range checks {
			if l.shown[i] {
				series = append(series, metric.Series{Desc: d, Values: []string{c.name}})
			}
		}
	}
	schema, err := metric.NewSchema(l.Name(), series)
	l.schema = schema
	return err
}
