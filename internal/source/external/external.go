// SPDX-License-Identifier: Apache-2.0

// Package external takes the metrics that other programs push: counters,
// gauges and histograms, one a line, over a Unix stream socket. docs/external.md
// has the protocol byte by byte.
//
// Whatever a client does, the tick does not wait for it. Clients are read in
// goroutines of their own, the schema of a new membership is made in another,
// and Read copies one flat array under a lock that nobody holds for long. All
// that clients can make the agent keep is bounded, and what a bound refused is
// counted by its reason.
package external

import (
	"fmt"
	"net"
	"sync"
	"time"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// DefaultPath is where the socket is when nothing else is said.
const DefaultPath = "/run/rezolus/external.sock"

// Options of the source. What is zero takes the default that stands beside it.
type Options struct {
	Path  string // of the socket; DefaultPath
	Group string // name or number of the group that may connect; the agent's own
	// TTL is how long a series lives after its last update; a minute.
	TTL time.Duration
	// Reserved tells the names of built-in metrics, which a client cannot
	// take. nil: only those of this package.
	Reserved func(name string) bool

	MaxClients      int // connections at once; 64
	MaxLine         int // bytes of a line without its newline; 65,536
	LinesPerSecond  int // of one process; 10,000, and so many at once
	SeriesPerClient int // that one process may have made; 1,000
	MaxSeries       int // of all; 10,000
	MaxWords        int // of all, a histogram takes 496; 262,144 (2 MiB)
}

func (o Options) withDefaults() Options {
	if o.Path == "" {
		o.Path = DefaultPath
	}
	if o.TTL <= 0 {
		o.TTL = time.Minute
	}
	if o.Reserved == nil {
		o.Reserved = func(string) bool { return false }
	}
	for _, n := range []struct {
		value    *int
		standard int
	}{{&o.MaxClients, 64}, {&o.MaxLine, 64 << 10}, {&o.LinesPerSecond, 10_000}, {&o.SeriesPerClient, 1000},
		{&o.MaxSeries, 10_000}, {&o.MaxWords, 1 << 18}} {
		if *n.value <= 0 {
			*n.value = n.standard
		}
	}
	return o
}

// Source is what clients pushed. New makes it.
type Source struct {
	options  Options
	listener *net.UnixListener
	socket   identity
	stop     chan struct{}
	kick     chan struct{} // asks for a schema of the membership as it is now
	running  sync.WaitGroup
	mono     func() int64 // CLOCK_MONOTONIC
	wall     func() int64

	mu      sync.Mutex
	conns   map[*net.UnixConn]struct{}
	closed  bool
	table   table
	current layout
	sweepAt int64 // mono: when to look for series past their TTL
	born    int64 // wall: when this source began to count
}

// layout is a membership as it is published. A series that is part of it has
// its words in flat.
type layout struct {
	schema *metric.Schema
	flat   []uint64
	users  int // whose lines are told
}

// New listens on the socket and begins to take lines.
func New(o Options) (*Source, error) {
	s := newSource(o.withDefaults())
	if err := s.build(); err != nil {
		return nil, err
	}
	if err := s.listen(); err != nil {
		return nil, err
	}
	s.running.Go(s.accept)
	s.running.Go(s.rebuild)
	return s, nil
}

func newSource(o Options) *Source {
	s := &Source{options: o, stop: make(chan struct{}), kick: make(chan struct{}, 1), mono: host.Mono, wall: host.Wall,
		conns: map[*net.UnixConn]struct{}{}, born: host.Wall()}
	s.table = newTable(&s.options)
	return s
}

// Name is "external".
func (s *Source) Name() string { return samplerName }

// Read fills f with what is held at this moment. It allocates nothing unless
// series came since the last time.
func (s *Source) Read(f *metric.Frame) error {
	f.Begin = s.mono()
	s.mu.Lock()
	if s.table.changed || f.Begin >= s.sweepAt {
		select {
		case s.kick <- struct{}{}:
		default: // it has been asked for already
		}
	}
	f.Schema = s.current.schema
	f.Resize(len(s.current.flat))
	copy(f.Values, s.current.flat)
	f.Lost = s.table.self(f.Values, s.current.users, len(s.conns))
	s.mu.Unlock()
	f.End = s.mono()
	return nil
}

// Close ends all connections and removes the socket.
func (s *Source) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.stop)
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	err := s.listener.Close()
	s.running.Wait()
	s.socket.remove(s.options.Path)
	if err != nil {
		return fmt.Errorf("close %s: %w", s.options.Path, err)
	}
	return nil
}

// Samplers is the one sampler of pushed metrics. It is off unless the
// configuration turns it on, because it opens a socket.
func Samplers(o Options) []source.Sampler {
	o = o.withDefaults()
	return []source.Sampler{{Name: samplerName, Reads: "Unix socket " + o.Path, Off: true,
		// Programs push once a second or so; to copy what they said at
		// each of 1,000 ticks would cost more than it tells.
		Every: 100 * time.Millisecond,
		Descs: descs,
		Open:  func() (source.Source, error) { return New(o) },
	}}
}
