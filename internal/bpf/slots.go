// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"rezolus/internal/metric"
)

const (
	slotProbes  = 8 // SLOT_PROBES in slots.bpf.h
	cellDeleted = ^uint64(0)
)

// Other is the value of a thing's labels for everything that has no slot of
// its own.
const Other = "other"

// Domain is one kind of thing that probes tell apart: cgroups, block devices,
// interfaces.
type Domain struct {
	Name  string // of its source, its banks and its table
	Slots int    // things told apart at once, with Other
	Bytes int    // what the banks of all probes may take; more things than that share a bank
	// Quiet: a thing is published once something was counted for it. Most
	// of a host's loop devices never see a request.
	Quiet     bool
	Constants map[string]any // what the programs must know beside the shape
}

// Thing is one of a domain: a cgroup, by its kernfs id and path.
type Thing struct {
	ID     uint64   // what the programs look up; not 0
	Values []string // of the labels of the domain's banks, in their order
}

// Slots is the one source of all banks of a domain. It owns the slots: which
// thing's events go where, told to the probes by a table that they search.
// Slot 0 is Other, so that the sum over all slots is exact whatever happens
// to a thing.
//
// A thing gets its slot when Born is called; what was counted for it before
// that is in Other, and its series start then. When it died its series are
// read once more, so that their last values are seen, and then end; the slot
// is cleared and free again.
type Slots struct {
	domain Domain
	host   Host
	banks  int
	table  *ebpf.Map
	cells  *mapping

	mu       sync.Mutex
	mapped   []*mappedBank
	byID     map[uint64]*tenant
	tenants  []*tenant // by slot; nil: free
	free     []int     // slots, the next at the end
	waiting  map[uint64]Thing
	leaving  int  // tenants that are not resident
	silent   int  // tenants that are quiet
	changed  bool // the schema no longer fits the tenants
	closed   bool // who follows the things may not have ended yet
	overflow atomic.Uint64

	schema   *metric.Schema
	live     []int  // slots in the order of the schema
	ranks    *ranks // nil: no probe has banks of pairs
	standing standing
	stirred  []int // scratch: of live, those to read
}

type tenant struct {
	Thing
	slot  int
	start int64
	state tenancy
	quiet bool // nothing was counted yet, and until then it is not published
}

// tenancy is how far a tenant is from leaving.
type tenancy uint8

const (
	resident tenancy = iota
	died             // to be read once more
	read             // read for the last time; to be cleared
)

// NewSlots makes the domain's table, for the banks that objects have.
func NewSlots(host Host, d Domain, objects ...*Object) (*Slots, error) {
	raiseMemlock()
	d.Slots = max(2, d.Slots)
	c := &Slots{domain: d, host: host, banks: 1, byID: map[uint64]*tenant{}, waiting: map[uint64]Thing{}, changed: true}
	slot, paired := 0, false
	for _, o := range objects {
		for _, b := range o.banks {
			if b.domain == d.Name && b.last != "" {
				paired = true
			} else if b.domain == d.Name {
				slot += b.stride
			}
		}
	}
	for c.banks < powerOfTwo(host.Possible) && 2*c.banks*d.Slots*slot <= d.Bytes {
		c.banks *= 2
	}
	// At least four cells a slot keep the searches short.
	table, err := ebpf.NewMap(&ebpf.MapSpec{Name: c.tableName(), Type: ebpf.Array, KeySize: 4, ValueSize: 16,
		MaxEntries: uint32(max(8, powerOfTwo(4*d.Slots))), Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		return nil, fmt.Errorf("make the table of domain %s: %w", d.Name, err)
	}
	if c.cells, err = mapMemory(table, 16); err != nil {
		return nil, errors.Join(err, table.Close())
	}
	c.table = table
	c.tenants = make([]*tenant, d.Slots)
	c.settle(&tenant{start: host.Wall(), quiet: d.Quiet})
	for slot := d.Slots - 1; slot > 0; slot-- {
		c.free = append(c.free, slot)
	}
	if paired {
		if c.ranks, err = newRanks(c); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

func (c *Slots) tableName() string { return c.domain.Name + "_table" }

// constants are what the programs must know (SLOTS in slots.bpf.h).
func (c *Slots) constants(set map[string]any) {
	prefix := "rz_" + c.domain.Name
	set[prefix+"_slots"] = uint32(c.domain.Slots)
	set[prefix+"_banks"] = uint32(c.banks)
	set[prefix+"_shared"] = c.banks < c.host.Possible
	set[prefix+"_shift"] = uint32(64 - bits.TrailingZeros32(c.table.MaxEntries()))
	maps.Copy(set, c.domain.Constants)
}

func (c *Slots) entries() int { return c.domain.Slots * c.banks }

// add takes over a bank that a probe mapped.
func (c *Slots) add(b *mappedBank) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.last != "" {
		c.ranks.add(b)
	} else {
		b.count, b.again = c.banks, make([]bool, c.domain.Slots)
		c.mapped = append(c.mapped, b)
	}
	c.changed = true
}

// Born gives each thing a slot, or lets it wait for one.
func (c *Slots) Born(things []Thing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	for _, g := range things {
		if c.byID[g.ID] == nil {
			c.admit(g)
		}
	}
}

// admit gives g a slot and tells the programs, or notes that it waits. A thing
// that comes back under its name before its series ended (a service that is
// restarted) goes on in them.
func (c *Slots) admit(g Thing) {
	if t := c.parting(g.Values); t != nil && c.enter(g.ID, t.slot) {
		delete(c.byID, t.ID)
		t.ID, t.state = g.ID, resident
		c.leaving--
		c.byID[g.ID] = t
		return
	}
	if len(c.free) == 0 {
		c.wait(g)
		return
	}
	slot := c.free[len(c.free)-1]
	if !c.enter(g.ID, slot) {
		c.wait(g)
		return
	}
	c.free = c.free[:len(c.free)-1]
	t := &tenant{Thing: g, slot: slot, start: c.host.Wall(), quiet: c.domain.Quiet}
	c.byID[g.ID] = t
	c.settle(t)
}

// settle lets a tenant have its slot.
func (c *Slots) settle(t *tenant) {
	if t.quiet {
		c.silent++
	}
	c.tenants[t.slot], c.changed = t, true
}

// parting is the tenant of that name whose series have not ended yet.
func (c *Slots) parting(values []string) *tenant {
	for _, t := range c.tenants {
		if t != nil && t.state != resident && slices.Equal(t.Values, values) {
			return t
		}
	}
	return nil
}

func (c *Slots) wait(g Thing) {
	if _, waits := c.waiting[g.ID]; !waits {
		c.waiting[g.ID] = g
		c.overflow.Add(1)
	}
}

// Died ends the things' series after one more read.
func (c *Slots) Died(things []Thing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	for _, g := range things {
		delete(c.waiting, g.ID)
		if t := c.byID[g.ID]; t != nil {
			c.erase(g.ID)
			if t.state == resident {
				c.leaving++
			}
			t.state = died
		}
	}
}

// Overflow counts the things that found no slot when they were born and
// whose events are in Other.
func (c *Slots) Overflow() uint64 { return c.overflow.Load() }

func (c *Slots) home(id uint64) uint64 {
	return id * 0x9E3779B97F4A7C15 >> (64 - bits.TrailingZeros32(c.table.MaxEntries()))
}

// cell is the i-th cell that a search for id looks at: id, slot.
func (c *Slots) cell(id, i uint64) []uint64 {
	return c.cells.value(int((c.home(id)+i)&uint64(c.table.MaxEntries()-1)), 0, 2)
}

// enter writes the cell of a thing: the slot before the id, so that a program
// never finds the id with another's slot.
func (c *Slots) enter(id uint64, slot int) bool {
	for i := range uint64(slotProbes) {
		cell := c.cell(id, i)
		if cell[0] == 0 || cell[0] == cellDeleted {
			atomic.StoreUint64(&cell[1], uint64(slot))
			atomic.StoreUint64(&cell[0], id)
			return true
		}
	}
	return false
}

func (c *Slots) erase(id uint64) {
	for i := range uint64(slotProbes) {
		if cell := c.cell(id, i); cell[0] == id {
			atomic.StoreUint64(&cell[0], cellDeleted)
			return
		}
	}
}

// Publishes tells whether any probe has banks of the domain.
func (c *Slots) Publishes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mapped) > 0
}

// republish has a bank publish something else.
func (c *Slots) republish(b *mappedBank, live *bankSpec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.bankSpec = live
	c.changed = true
	if c.ranks != nil {
		for _, p := range c.ranks.banks {
			if p.mappedBank == b {
				p.reset()
			}
		}
	}
}

// MappedBytes is how much of the table is in the resident set of the process
// too; the banks are their probes'.
func (c *Slots) MappedBytes() uint64 { return uint64(len(c.cells.bytes)) }

// KernelBytes is the memory of the tables.
func (c *Slots) KernelBytes() uint64 {
	sum := mapBytes(c.table)
	if c.ranks != nil {
		sum += mapBytes(c.ranks.table)
	}
	return sum
}

// Close unmaps everything; the probes must be closed before. Who tells of things
// may go on doing so.
func (c *Slots) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	errs := []error{c.cells.close(), c.table.Close()}
	for _, b := range c.mapped {
		errs = append(errs, b.close())
	}
	c.mapped = nil
	if c.ranks != nil {
		errs = append(errs, c.ranks.close())
	}
	return errors.Join(errs...)
}
