// SPDX-License-Identifier: Apache-2.0

// Package ethtool reads what the driver of Amazon's Elastic Network Adapter
// counts: packets that the instance's allowances held back or dropped, for
// every interface. Nothing else on the machine shows them.
package ethtool

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

const sampler = "network_ethtool"

func allowance(name string, help string, keys ...string) *metric.Desc {
	return &metric.Desc{Name: "network_ena_" + name, Help: help, Unit: "packets", Kind: metric.Counter, Keys: keys, Sampler: sampler}
}

var bandwidth = allowance("bandwidth_allowance_exceeded", "packets queued or dropped because the bandwidth of the instance was exceeded", "direction", "interface")

// statistics are the driver's names (drivers/net/ethernet/amazon/ena/ena_ethtool.c
// and Amazon's ENI metrics). Values are of the label direction.
var statistics = []struct {
	name   string
	desc   *metric.Desc
	values []string
}{
	{"bw_in_allowance_exceeded", bandwidth, []string{"receive"}},
	{"bw_out_allowance_exceeded", bandwidth, []string{"transmit"}},
	{"pps_allowance_exceeded", allowance("pps_allowance_exceeded",
		"packets queued or dropped because the packet rate of the instance was exceeded", "interface"), nil},
	{"conntrack_allowance_exceeded", allowance("conntrack_allowance_exceeded",
		"packets dropped because the instance tracks as many connections as it may", "interface"), nil},
	{"linklocal_allowance_exceeded", allowance("linklocal_allowance_exceeded",
		"packets dropped because the packet rate to local services (DNS, metadata, time) was exceeded", "interface"), nil},
	{"conntrack_allowance_available", &metric.Desc{Name: "network_ena_conntrack_allowance_available", Sampler: sampler, Kind: metric.Gauge,
		Help: "connections that the instance can track on top of those it does", Keys: []string{"interface"}}, nil},
}

// maxInterfaces bounds the interfaces that are asked; an instance can have 15.
const maxInterfaces = 64

// rediscover is how often interfaces are looked for anew. One that appears is
// found by then; one that goes is noticed at once.
const rediscover = 30 * time.Second

// asks is the part of the kernel that the source needs: what interfaces there
// are, and what their drivers say (ioctl SIOCETHTOOL, ethtool(8)).
type asks interface {
	interfaces() ([]string, error)
	// names are those of the driver's statistics; none is no error.
	names(name string) ([]string, error)
	// values fills to with as many statistics as it has room for.
	values(name string, to []uint64) error
	Close() error
}

// Source is the source of the allowances of all interfaces.
type Source struct {
	kernel     asks
	interfaces []card
	started    map[string]int64 // when counting was first seen, by interface
	looked     int64            // Mono
	first      bool
	schema     *metric.Schema
}

// card is an interface that has some of the statistics.
type card struct {
	name  string
	all   []uint64 // what the driver says
	takes []take
}

// take is which of the driver's numbers is which statistic.
type take struct{ from, statistic int }

// New looks for interfaces that have allowances. Without one the machine is not
// supported.
func New() (*Source, error) {
	k, err := newSocket()
	if err != nil {
		return nil, err
	}
	return open(k)
}

func open(kernel asks) (*Source, error) {
	s := &Source{kernel: kernel, started: map[string]int64{}, first: true}
	err := s.discover()
	if err == nil && len(s.interfaces) == 0 {
		err = source.Unsupported("no interface has allowances; they are those of Amazon EC2 (driver ena 2.2.10 or newer)")
	}
	if err != nil {
		return nil, errors.Join(err, kernel.Close())
	}
	s.first = false
	return s, nil
}

// Name is "network_ethtool".
func (s *Source) Name() string { return sampler }

// Read fills f, without allocating between two looks for interfaces while the
// same ones are there.
func (s *Source) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	if s.schema == nil || f.Begin-s.looked > int64(rediscover) {
		if err := s.discover(); err != nil {
			return err
		}
		f.Begin = host.Mono()
	}
	for i := range s.interfaces {
		c := &s.interfaces[i]
		if err := s.kernel.values(c.name, c.all); err != nil {
			s.schema = nil // it went away, or has another driver now
			return fmt.Errorf("read statistics of interface %s: %w", c.name, err)
		}
	}
	f.End = host.Mono()
	f.Schema, f.Lost = s.schema, 0
	f.Resize(s.schema.Words)
	to := f.Values[:0]
	for _, c := range s.interfaces {
		for _, t := range c.takes {
			to = append(to, c.all[t.from])
		}
	}
	return nil
}

// discover finds the interfaces that have some of the statistics.
func (s *Source) discover() error {
	s.looked = host.Mono()
	names, err := s.kernel.interfaces()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	var found []card
	for _, name := range names {
		// An interface may go away meanwhile, and a driver may refuse.
		has, err := s.kernel.names(name)
		if takes := choose(has); err == nil && len(takes) > 0 && len(found) < maxInterfaces {
			found = append(found, card{name: name, all: make([]uint64, len(has)), takes: takes})
		}
	}
	same := slices.EqualFunc(found, s.interfaces, func(a, b card) bool {
		return a.name == b.name && len(a.all) == len(b.all) && slices.Equal(a.takes, b.takes)
	})
	if same && s.schema != nil {
		return nil
	}
	s.interfaces = found
	return s.rebuild()
}

// choose is where in the driver's statistics those of this package are.
func choose(names []string) (takes []take) {
	for i := range statistics {
		if at := slices.Index(names, statistics[i].name); at >= 0 {
			takes = append(takes, take{at, i})
		}
	}
	return takes
}

// rebuild makes the schema. An interface that was there when the agent came
// counts since the machine started, any other since it was found.
func (s *Source) rebuild() (err error) {
	for name := range s.started {
		if !slices.ContainsFunc(s.interfaces, func(c card) bool { return c.name == name }) {
			delete(s.started, name)
		}
	}
	var series []metric.Series
	for _, c := range s.interfaces {
		if s.started[c.name] == 0 {
			s.started[c.name] = host.Wall()
			if s.first {
				s.started[c.name] = host.BootTime()
			}
		}
		for _, t := range c.takes {
			what := statistics[t.statistic]
			one := metric.Series{Desc: what.desc, Values: append(slices.Clone(what.values), c.name)}
			if what.desc.Kind == metric.Counter {
				one.Start = s.started[c.name]
			}
			series = append(series, one)
		}
	}
	s.schema, err = metric.NewSchema(sampler, series)
	return err
}

// Close closes the socket.
func (s *Source) Close() error { return s.kernel.Close() }

// interfaces are those of the network namespace of the agent.
func (*socket) interfaces() (names []string, err error) {
	all, err := net.Interfaces()
	for _, i := range all {
		names = append(names, i.Name)
	}
	return names, err
}

// Samplers is the sampler of this package. The driver asks the device, and the
// kernel holds the lock of the network configuration meanwhile.
func Samplers() []source.Sampler {
	var descs []*metric.Desc
	for _, s := range statistics {
		if !slices.Contains(descs, s.desc) {
			descs = append(descs, s.desc)
		}
	}
	return []source.Sampler{{Name: sampler, Reads: "SIOCETHTOOL", Needs: "an Amazon EC2 instance with the driver ena", Descs: descs,
		Every: time.Second, Blocking: true,
		Open: func() (source.Source, error) { return New() }}}
}
