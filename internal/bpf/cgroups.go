// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"rezolus/internal/metric"
)

const (
	cgroupTableName = "cgroup_table"
	cgroupProbes    = 8 // CGROUP_PROBES in cgroup.bpf.h
	cgroupDeleted   = ^uint64(0)
	cgroupBankBytes = 8 << 20 // what the banks of one map may take
	cgroupWords     = 64      // words of a slot that size the banks
)

// Other is the value of the label name for everything that has no slot of its
// own. No path is equal to it: paths begin with a slash.
const Other = "other"

// Cgroup is a control group as the tracker of cgroups knows it.
type Cgroup struct {
	ID   uint64 // kernfs id: the inode number of its directory
	Path string // within the hierarchy; the root is "/"
}

// CgroupSource is the one source of all banks by cgroup. It owns the slots:
// which cgroup's events go where, told to the probes by a table that they
// search. Slot 0 is Other, so that the sum over all slots is exact whatever
// happens to a cgroup.
//
// A cgroup gets its slot when Born is called; what its tasks did before that
// is in Other, and its series start then. When it died its series are read
// once more, so that their last values are seen, and then end; the slot is
// cleared and free again.
type CgroupSource struct {
	host  Host
	slots int
	banks int
	v1    bool
	table *ebpf.Map
	cells *mapping

	mu       sync.Mutex
	mapped   []*mappedBank
	byID     map[uint64]*tenant
	tenants  []*tenant // by slot; nil: free
	free     []int     // slots, the next at the end
	waiting  map[uint64]Cgroup
	changed  bool // the schema no longer fits the tenants
	overflow atomic.Uint64

	schema *metric.Schema
	live   []int // slots in the order of the schema
}

type tenant struct {
	Cgroup
	slot  int
	start int64
	state tenancy
}

// tenancy is how far a tenant is from leaving.
type tenancy uint8

const (
	resident tenancy = iota
	died             // to be read once more
	read             // read for the last time; to be cleared
)

// NewCgroupSource makes the table. slots counts Other in; v1 says that the
// hierarchy is that of the v1 cpu controller and not the unified one.
func NewCgroupSource(host Host, slots int, v1 bool) (*CgroupSource, error) {
	c := &CgroupSource{host: host, slots: max(2, slots), v1: v1, banks: 1,
		byID: map[uint64]*tenant{}, waiting: map[uint64]Cgroup{}, changed: true}
	for c.banks < powerOfTwo(host.Possible) && 2*c.banks*c.slots*cgroupWords*8 <= cgroupBankBytes {
		c.banks *= 2
	}
	// At least four cells a slot keep the searches short.
	table, err := ebpf.NewMap(&ebpf.MapSpec{Name: cgroupTableName, Type: ebpf.Array, KeySize: 4, ValueSize: 16,
		MaxEntries: uint32(max(8, powerOfTwo(4*c.slots))), Flags: 1 << 10 /* BPF_F_MMAPABLE */})
	if err != nil {
		return nil, fmt.Errorf("make the table of cgroups: %w", err)
	}
	if c.cells, err = mapMemory(table, 16); err != nil {
		return nil, errors.Join(err, table.Close())
	}
	c.table = table
	c.tenants = make([]*tenant, c.slots)
	c.tenants[0] = &tenant{Cgroup: Cgroup{Path: Other}, start: host.Wall()}
	for slot := c.slots - 1; slot > 0; slot-- {
		c.free = append(c.free, slot)
	}
	return c, nil
}

// constants are what the programs must know (cgroup.bpf.h, metric.bpf.h).
func (c *CgroupSource) constants(set map[string]any) {
	set["rz_slots"] = uint32(c.slots)
	set["rz_cgroup_banks"] = uint32(c.banks)
	set["rz_cgroup_shared"] = c.banks < c.host.Possible
	set["rz_cgroup_v1"] = c.v1
	set["rz_cgroup_shift"] = uint32(64 - bits.TrailingZeros32(c.table.MaxEntries()))
}

func (c *CgroupSource) entries() int { return c.slots * c.banks }

// add takes over a bank that a probe mapped.
func (c *CgroupSource) add(b *mappedBank) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.count = c.banks
	c.mapped = append(c.mapped, b)
	c.changed = true
}

// Born gives each cgroup a slot, or lets it wait for one.
func (c *CgroupSource) Born(cgroups []Cgroup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range cgroups {
		if c.byID[g.ID] == nil {
			c.admit(g)
		}
	}
}

// admit gives g a slot and tells the programs, or notes that it waits. A cgroup
// that comes back under its path before its series ended (a service that is
// restarted) goes on in them.
func (c *CgroupSource) admit(g Cgroup) {
	if t := c.leaving(g.Path); t != nil && c.enter(g.ID, t.slot) {
		delete(c.byID, t.ID)
		t.ID, t.state = g.ID, resident
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
	t := &tenant{Cgroup: g, slot: slot, start: c.host.Wall()}
	c.tenants[slot], c.byID[g.ID] = t, t
	c.changed = true
}

func (c *CgroupSource) leaving(path string) *tenant {
	for _, t := range c.tenants {
		if t != nil && t.state != resident && t.Path == path {
			return t
		}
	}
	return nil
}

func (c *CgroupSource) wait(g Cgroup) {
	if _, waits := c.waiting[g.ID]; !waits {
		c.waiting[g.ID] = g
		c.overflow.Add(1)
	}
}

// Died ends the cgroups' series after one more read.
func (c *CgroupSource) Died(cgroups []Cgroup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range cgroups {
		delete(c.waiting, g.ID)
		if t := c.byID[g.ID]; t != nil {
			c.erase(g.ID)
			t.state = died
		}
	}
}

// Overflow counts the cgroups that found no slot when they were born and
// whose events are in Other.
func (c *CgroupSource) Overflow() uint64 { return c.overflow.Load() }

func (c *CgroupSource) home(id uint64) uint64 {
	return id * 0x9E3779B97F4A7C15 >> (64 - bits.TrailingZeros32(c.table.MaxEntries()))
}

// cell is the i-th cell that a search for id looks at: id, slot.
func (c *CgroupSource) cell(id, i uint64) []uint64 {
	return c.cells.value(int((c.home(id)+i)&uint64(c.table.MaxEntries()-1)), 0, 2)
}

// enter writes the cell of a cgroup: the slot before the id, so that a program
// never finds the id with another's slot.
func (c *CgroupSource) enter(id uint64, slot int) bool {
	for i := range uint64(cgroupProbes) {
		cell := c.cell(id, i)
		if cell[0] == 0 || cell[0] == cgroupDeleted {
			atomic.StoreUint64(&cell[1], uint64(slot))
			atomic.StoreUint64(&cell[0], id)
			return true
		}
	}
	return false
}

func (c *CgroupSource) erase(id uint64) {
	for i := range uint64(cgroupProbes) {
		if cell := c.cell(id, i); cell[0] == id {
			atomic.StoreUint64(&cell[0], cgroupDeleted)
			return
		}
	}
}

// Name is "cgroup".
func (c *CgroupSource) Name() string { return "cgroup" }

// Read sums the banks of each live slot. It allocates only when cgroups came
// or went.
func (c *CgroupSource) Read(f *metric.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.vacate()
	if c.changed {
		if err := c.rebuild(); err != nil {
			return err
		}
	}
	f.Schema, f.Lost = c.schema, 0
	f.Resize(c.schema.Words)
	f.Begin = c.host.Mono()
	to := f.Values
	for _, b := range c.mapped {
		for i := range b.members {
			for _, slot := range c.live {
				m := &b.members[i]
				c.sum(b, to[:m.words], slot, m.offset)
				to = to[m.words:]
			}
		}
	}
	f.End = c.host.Mono()
	return nil
}

func (c *CgroupSource) sum(b *mappedBank, dst []uint64, slot, offset int) {
	copy(dst, b.value(slot, offset, len(dst)))
	for bank := 1; bank < c.banks; bank++ {
		for i, w := range b.value(bank*c.slots+slot, offset, len(dst)) {
			dst[i] += w
		}
	}
}

// vacate moves each tenant that died one step towards leaving. A slot is
// cleared only after a read that came after the death, when no event can
// reach it any more.
func (c *CgroupSource) vacate() {
	for slot, t := range c.tenants {
		switch {
		case t == nil || t.state == resident:
		case t.state == died:
			t.state = read
		default:
			c.clear(slot)
			delete(c.byID, t.ID)
			c.tenants[slot] = nil
			c.free = append(c.free, slot)
			c.changed = true
		}
	}
	for id, g := range c.waiting {
		if len(c.free) == 0 {
			break
		}
		delete(c.waiting, id)
		c.admit(g)
	}
}

func (c *CgroupSource) clear(slot int) {
	for _, b := range c.mapped {
		for bank := range c.banks {
			clear(b.value(bank*c.slots+slot, 0, b.stride/8))
		}
	}
}

// rebuild makes the schema of the present tenants: each metric's series
// together, by slot.
func (c *CgroupSource) rebuild() error {
	c.live = c.live[:0]
	for slot, t := range c.tenants {
		if t != nil {
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
					series = append(series, metric.Series{Desc: m.desc, Values: m.values(combo, t.Path), Start: t.start})
				}
			}
		}
	}
	schema, err := metric.NewSchema(c.Name(), series)
	if err != nil {
		return err
	}
	c.schema, c.changed = schema, false
	return nil
}

// Publishes tells whether any probe has banks by cgroup.
func (c *CgroupSource) Publishes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mapped) > 0
}

// KernelBytes is the memory of the table.
func (c *CgroupSource) KernelBytes() uint64 { return mapBytes(c.table) }

// Close unmaps everything; the probes must be closed before.
func (c *CgroupSource) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs := []error{c.cells.close(), c.table.Close()}
	for _, b := range c.mapped {
		errs = append(errs, b.close())
	}
	c.mapped = nil
	return errors.Join(errs...)
}
