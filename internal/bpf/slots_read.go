// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"slices"

	"rezolus/internal/metric"
)

// Name is "per_" and the domain's.
func (c *Slots) Name() string { return "per_" + c.domain.Name }

// Read brings the sums over the banks of each live slot up to date. It
// allocates only when things came or went.
func (c *Slots) Read(f *metric.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.vacate()
	c.listen()
	if c.ranks != nil && c.ranks.update(c.host.Mono()) {
		c.changed = true
	}
	if c.changed {
		if err := c.rebuild(); err != nil {
			return err
		}
	}
	c.standing.begin(c.schema, c.host.Mono())
	at := 0
	for _, b := range c.mapped {
		at = c.bring(b, at)
	}
	if c.ranks != nil {
		c.ranks.fill(&c.standing, at)
	}
	c.standing.frame.End = c.host.Mono()
	f.CopyFrom(&c.standing.frame)
	return nil
}

// bring brings the words of a bank up to date, from at on, and returns where
// they end. A slot is read after a program looked it up, and once more: the
// first time it may not have counted yet. No program runs from one tick to the
// next but one.
func (c *Slots) bring(b *mappedBank, at int) int {
	c.stirred = c.stirred[:0]
	for i, slot := range c.live {
		touched := b.touched(c.copies(slot), 0) != 0
		if touched || b.again[slot] || c.standing.whole {
			c.stirred = append(c.stirred, i)
		}
		b.again[slot] = touched
	}
	for i := range b.members {
		m := &b.members[i]
		for _, i := range c.stirred {
			c.standing.member(b, c.copies(c.live[i]), m, at+i*m.words)
		}
		at += m.words * len(c.live)
	}
	return at
}

// copies are the values of a slot.
func (c *Slots) copies(slot int) copies { return copies{slot, c.domain.Slots, c.banks} }

// weight is what a slot has counted in the members that make a thing heavy.
func (c *Slots) weight(slot int) (sum uint64) {
	for _, b := range c.mapped {
		for i := range b.members {
			if m := &b.members[i]; m.weight {
				for bank := range c.banks {
					for _, w := range b.value(bank*c.domain.Slots+slot, m.offset, m.words) {
						sum += w
					}
				}
			}
		}
	}
	return sum
}

// vacate moves each tenant that died one step towards leaving. A slot is
// cleared only after a read that came after the death, when no event can
// reach it any more.
func (c *Slots) vacate() {
	if c.leaving > 0 {
		for _, t := range c.tenants {
			switch {
			case t == nil || t.state == resident:
			case t.state == died:
				t.state = read
			default:
				c.release(t)
			}
		}
	}
	if len(c.waiting) == 0 || len(c.free) == 0 {
		return
	}
	for id, g := range c.waiting {
		if len(c.free) == 0 {
			break
		}
		delete(c.waiting, id)
		c.admit(g)
	}
}

// release ends the series of a tenant that was read for the last time.
func (c *Slots) release(t *tenant) {
	c.clear(t.slot)
	delete(c.byID, t.ID)
	if t.quiet {
		c.silent--
	}
	c.leaving--
	c.tenants[t.slot], c.changed = nil, true
	c.free = append(c.free, t.slot)
}

func (c *Slots) clear(slot int) {
	for _, b := range c.mapped {
		for bank := range c.banks {
			clear(b.value(bank*c.domain.Slots+slot, 0, b.stride/8))
		}
	}
}

// listen ends the quiet of the things that something was counted for.
func (c *Slots) listen() {
	if c.silent == 0 {
		return
	}
	for slot, t := range c.tenants {
		if t != nil && t.quiet && c.heard(slot) {
			t.quiet, c.changed = false, true
			c.silent--
		}
	}
}

// heard tells whether any counter of a slot is not zero. Each event counts in
// a counter; the buckets, which are many, need not be looked at.
func (c *Slots) heard(slot int) bool {
	for _, b := range c.mapped {
		for bank := range c.banks {
			if b.value(bank*c.domain.Slots+slot, 0, 1)[0] != 0 && b.counted(bank*c.domain.Slots+slot) {
				return true
			}
		}
	}
	return false
}

func (b *mappedBank) counted(value int) bool {
	for i := range b.members {
		m := &b.members[i]
		if m.desc.Kind == metric.Counter && slices.ContainsFunc(b.value(value, m.offset, m.words), func(w uint64) bool { return w != 0 }) {
			return true
		}
	}
	return false
}

// rebuild makes the schema of the present tenants: each metric's series
// together, by slot.
func (c *Slots) rebuild() error {
	c.live = c.live[:0]
	for slot, t := range c.tenants {
		if t != nil && !t.quiet {
			c.live = append(c.live, slot)
		}
	}
	var series []metric.Series
	for _, b := range c.mapped {
		for i := range b.members {
			m := &b.members[i]
			for _, slot := range c.live {
				t := c.tenants[slot]
				for _, combo := range m.combos {
					series = append(series, metric.Series{Desc: m.desc, Values: m.values(combo, t.Values), Start: max(t.start, m.since)})
				}
			}
		}
	}
	if c.ranks != nil {
		series = append(series, c.ranks.series()...)
	}
	schema, err := metric.NewSchema(c.Name(), series)
	if err != nil {
		return err
	}
	c.schema, c.changed = schema, false
	return nil
}
