// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// bank is the source of trees of which each may hang, as a chip behind a bus
// does that is stuck. Each is read by a goroutine of its own.
type bank struct {
	name    string
	find    func() []int // the numbers of the trees there are
	of      func(n int) func() []attribute
	wait    time.Duration
	timer   *time.Timer
	members []*member
	next    int64 // Mono when to look for trees again
	schema  *metric.Schema
}

// patience is how long a bank waits for its trees.
const patience = 5 * time.Second

// member is a tree and its goroutine, which owns frame from being asked to its
// answer.
type member struct {
	number int
	frame  metric.Frame
	ask    chan struct{}
	answer chan error
	asked  bool
	shown  *metric.Schema // what of it the bank's schema has; nil: nothing
}

func newBank(name string, find func() []int, of func(n int) func() []attribute) *bank {
	b := &bank{name: name, find: find, of: of, wait: patience, timer: time.NewTimer(time.Hour)}
	b.look()
	return b
}

// look takes on the trees that appeared and lets go of those that went.
func (b *bank) look() {
	b.next = host.Mono() + rescan
	found := b.find()
	b.members = slices.DeleteFunc(b.members, func(m *member) bool {
		gone := !slices.Contains(found, m.number)
		if gone {
			close(m.ask)
			b.schema = nil
		}
		return gone
	})
	for _, n := range found {
		if slices.ContainsFunc(b.members, func(m *member) bool { return m.number == n }) {
			continue
		}
		m := &member{number: n, ask: make(chan struct{}, 1), answer: make(chan error, 1)}
		go m.follow(b.name, b.of(n))
		b.members, b.schema = append(b.members, m), nil
	}
}

// follow opens the tree, which may hang too, and reads it each time it is
// asked to.
func (m *member) follow(name string, find func() []attribute) {
	t := &tree{name: name, find: find}
	for range m.ask {
		m.answer <- t.Read(&m.frame) // there is room: it is asked one thing at a time
	}
	t.closeFiles()
}

// Name is the sampler's.
func (b *bank) Name() string { return b.name }

// Read reads all trees at once. Those that say nothing in time, or nothing
// that can be read, are not in the frame.
func (b *bank) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	if f.Begin >= b.next {
		b.look()
	}
	b.askAll()
	changed, failed := b.awaitAll()
	f.End = host.Mono()
	if changed || b.schema == nil {
		if err := b.rebuild(); err != nil {
			return err
		}
	}
	if b.schema.Words == 0 {
		return errors.Join(fmt.Errorf("%s: none of %d can be read", b.name, len(b.members)), failed)
	}
	f.Schema, f.Lost = b.schema, 0
	f.Resize(b.schema.Words)
	to := f.Values[:0]
	for _, m := range b.members {
		if m.shown != nil {
			to = append(to, m.frame.Values...)
		}
	}
	return nil
}

// askAll asks each. An answer to a question of before is too old to be of this
// read.
func (b *bank) askAll() {
	for _, m := range b.members {
		if m.asked {
			select {
			case <-m.answer:
			default:
				continue
			}
		}
		m.asked = true
		m.ask <- struct{}{}
	}
}

var errHangs = errors.New("no answer in time")

// awaitAll waits for the answers, and tells whether others than before are to
// be shown, and why one is not.
func (b *bank) awaitAll() (changed bool, failed error) {
	b.timer.Reset(b.wait)
	late := false
	for _, m := range b.members {
		err := errHangs
		if !late {
			select {
			case err = <-m.answer:
				m.asked = false
			case <-b.timer.C:
				late = true
			}
		}
		if late && m.asked {
			select {
			case err = <-m.answer:
				m.asked = false
			default:
			}
		}
		var now *metric.Schema
		if failed = err; err == nil {
			now = m.frame.Schema
		}
		changed = changed || now != m.shown
		m.shown = now
	}
	return changed, failed
}

func (b *bank) rebuild() (err error) {
	var series []metric.Series
	for _, m := range b.members {
		if m.shown != nil {
			series = append(series, m.shown.Series...)
		}
	}
	b.schema, err = metric.NewSchema(b.name, series)
	return err
}

// Close lets the trees go; those that hang close their files when they do not
// any more.
func (b *bank) Close() error {
	b.timer.Stop()
	for _, m := range b.members {
		close(m.ask)
	}
	b.members = nil
	return nil
}
