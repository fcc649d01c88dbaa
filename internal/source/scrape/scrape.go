// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// Source is one endpoint. New makes it.
type Source struct {
	name    string
	where   string // for people: without the password
	options Endpoint
	fetch   func(ctx context.Context, buf []byte, limit int) ([]byte, error)
	parse   func(body []byte) error
	settle  func()
	idle    func() // closes idle connections
	table   *table
	fate    *fate
	ended   *metric.Schema // of no series
	body    []byte
	failed  int // scrapes in a row
	live    context.Context
	stop    context.CancelFunc
	wall    func() int64
}

// endAfter is how many scrapes in a row fail before the series end. After one
// or two nothing is known; then they are gone until the endpoint is back.
const endAfter = 3

// New makes the source of an endpoint. reserved tells the names of built-in
// metrics, which are published with "scraped_" before them; nil: there are
// none.
func New(e Endpoint, reserved func(name string) bool) (*Source, error) {
	return newSource(e, reserved, &fate{})
}

func newSource(e Endpoint, reserved func(string) bool, to *fate) (*Source, error) {
	e, u, err := e.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Source{name: sourceName(e), where: u.Redacted(), options: e, fate: to, settle: func() {}, idle: func() {}, wall: host.Wall}
	s.table = newTable(s.name, e, reserved)
	if s.ended, err = metric.NewSchema(s.name, nil); err != nil {
		return nil, err
	}
	if u.Scheme == schemeMemcache {
		s.fetch, s.parse = (&memcache{u.Host}).fetch, (&stats{s.table}).parse
	} else {
		w := newWeb(u, e)
		s.fetch, s.idle = w.fetch, w.close
		if text, binary := newText(s.table), newProtobuf(s.table); w.text {
			s.parse, s.settle = func(body []byte) error {
				if w.binary {
					return binary.parse(body)
				}
				return text.parse(body)
			}, func() {
				if w.binary {
					binary.settle()
				} else {
					text.settle()
				}
			}
		} else {
			s.parse = (&document{s.table, e.Counters}).parse
		}
	}
	s.live, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// sourceName is the name of an endpoint's source and switch.
func sourceName(e Endpoint) string { return samplerName + "/" + e.Name }

// Name is "scrape/" and the endpoint's name.
func (s *Source) Name() string { return s.name }

// Read scrapes the endpoint, which takes its Timeout at most. What fails gives
// no frame; after some failures in a row, one without series.
func (s *Source) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	err := s.scrape()
	f.End = host.Mono()
	s.fate.tell(s.table, len(s.body), f.End-f.Begin, err)
	f.Lost = s.fate.lost()
	if err == nil {
		s.failed = 0
		s.table.write(f)
		return nil
	}
	s.table.abandon()
	if s.failed++; s.failed < endAfter {
		return fmt.Errorf("scrape %s: %w", s.where, err)
	}
	f.Schema = s.ended
	f.Resize(0)
	return nil
}

// parseError is an answer that is not what it should be.
type parseError struct{ error }

func (e parseError) Unwrap() error { return e.error }

func (s *Source) scrape() error {
	ctx, cancel := context.WithTimeout(s.live, s.options.Timeout)
	defer cancel()
	began := s.wall()
	body, err := s.fetch(ctx, s.body[:0], s.options.MaxBytes)
	s.body = body
	if err != nil {
		var outer *url.Error
		if errors.As(err, &outer) { // it repeats the address
			err = outer.Err
		}
		if ctx.Err() != nil { // whatever broke, it broke because of that
			err = fmt.Errorf("%w after %v", os.ErrDeadlineExceeded, s.options.Timeout)
		}
		return err
	}
	s.table.begin(began)
	if err := s.parse(body); err != nil {
		return parseError{err}
	}
	if err := s.table.finish(); err != nil {
		return parseError{err}
	}
	s.settle()
	return nil
}

// Close ends the scrape under way, too.
func (s *Source) Close() error {
	s.stop()
	s.idle()
	return nil
}

// Samplers are one for each endpoint, and one that tells how all fare. An
// endpoint that is not as it should be (Check) fails when it is opened.
func Samplers(endpoints []Endpoint, reserved func(name string) bool) []source.Sampler {
	health := &Health{}
	all := make([]source.Sampler, 0, len(endpoints)+1)
	for _, e := range endpoints {
		e, u, err := e.withDefaults()
		reads := "an address that is none"
		if err == nil {
			reads = u.Redacted()
		}
		to := health.add(e.Name)
		all = append(all, source.Sampler{Name: sourceName(e), Reads: reads, Every: e.Interval, Blocking: true,
			Open: func() (source.Source, error) {
				s, err := newSource(e, reserved, to)
				if err != nil {
					return nil, err
				}
				return s, nil
			}})
	}
	if len(all) > 0 {
		all = append(all, source.Sampler{Name: samplerName, Reads: "how the scrapes of endpoints went", Descs: descs,
			Open: func() (source.Source, error) { return health, nil }})
	}
	return all
}

// why is what made a scrape fail.
func why(err error) failure {
	var status statusError
	var parse parseError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return byTimeout
	case errors.As(err, &status), errors.Is(err, errRefused):
		return byStatus
	case errors.Is(err, errTooLarge):
		return bySize
	case errors.As(err, &parse), errors.Is(err, errTruncated), errors.Is(err, errForm):
		return byContent
	}
	return byConnection
}
