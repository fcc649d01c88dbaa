// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"rezolus/internal/metric"
)

// mapping is the memory of an array map (BPF_F_MMAPABLE, Linux 5.5): what the
// programs add to, without a system call. Words are read one by one; a word
// is never torn on 64-bit machines.
type mapping struct {
	bytes []byte
	words []uint64
	step  int // words from one value to the next
}

func mapMemory(m *ebpf.Map, stride int) (*mapping, error) {
	page := unix.Getpagesize()
	size := (int(m.MaxEntries())*stride + page - 1) / page * page
	b, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the memory of %v: %w", m, err)
	}
	return &mapping{b, unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), len(b)/8), stride / 8}, nil
}

// value is the words of the i-th value from byte offset on.
func (m *mapping) value(i, offset, words int) []uint64 {
	at := i*m.step + offset/8
	return m.words[at : at+words : at+words]
}

func (m *mapping) close() error { return unix.Munmap(m.bytes) }

// Source reads a probe's banks by CPU: counters per CPU as they are, everything
// else summed over the CPUs. It satisfies the agent's interface of a source.
type Source struct {
	name   string
	start  int64
	mono   func() int64
	online []int

	mu       sync.Mutex
	schema   *metric.Schema
	banks    []*mappedBank
	standing standing
}

type mappedBank struct {
	*bankSpec // what of it is published
	*mapping
	count int
	whole *bankSpec // as the object has it
	again []bool    // by slot: a program was about to count there when it was read last
}

// mapBanks maps the banks that publish: those by CPU become the probe's
// source, those of a domain are handed to the domain's.
func (p *Probe) mapBanks(opts Options) error {
	c := &Source{name: p.object.Name, start: opts.Host.Wall(), mono: opts.Host.Mono, online: opts.Host.Online}
	for _, whole := range p.object.banks {
		live := p.publishing(whole)
		if len(live.members) == 0 {
			continue
		}
		memory, err := mapMemory(p.maps[whole.name], whole.stride)
		if err != nil {
			return err
		}
		b := &mappedBank{bankSpec: live, mapping: memory, count: opts.Host.Possible, whole: whole}
		p.mapped = append(p.mapped, b)
		if whole.domain != "" {
			opts.slots(whole.domain).add(b)
		} else {
			c.banks = append(c.banks, b)
		}
	}
	if len(c.banks) == 0 {
		return nil
	}
	p.source = c
	return c.rebuild()
}

// rebuild makes the schema of what the banks publish.
func (c *Source) rebuild() error {
	var series []metric.Series
	for _, b := range c.banks {
		series = append(series, b.series(c.online, c.start)...)
	}
	schema, err := metric.NewSchema(c.name, series)
	c.schema = schema
	return err
}

// series are the series of a bank by CPU, in the order in which read fills a
// frame.
func (b *bankSpec) series(online []int, start int64) []metric.Series {
	var series []metric.Series
	for _, m := range b.members {
		owners := [][]string{nil}
		if m.perCPU {
			owners = owners[:0]
			for _, cpu := range online {
				owners = append(owners, []string{strconv.Itoa(cpu)})
			}
		}
		for _, owner := range owners {
			for _, combo := range m.combos {
				series = append(series, metric.Series{Desc: m.desc, Values: m.values(combo, owner), Start: max(start, m.since)})
			}
		}
	}
	return series
}

// Name is the name of the probe.
func (c *Source) Name() string { return c.name }

// Read brings the frame up to date, without allocating. The frame's stamps
// tell what changed since a read before.
func (c *Source) Read(f *metric.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.standing.begin(c.schema, c.mono())
	at, lost := 0, uint64(0)
	for _, b := range c.banks {
		for i := range b.members {
			m := &b.members[i]
			if m.perCPU {
				for _, cpu := range c.online {
					c.standing.sum(b, copies{cpu, 1, 1}, m.offset, at, m.words)
					at += m.words
				}
			} else {
				c.standing.member(b, copies{0, 1, b.count}, m, at)
				at += m.words
			}
			if m.lost {
				lost += b.total(m)
			}
		}
	}
	c.standing.frame.Lost, c.standing.frame.End = lost, c.mono()
	f.CopyFrom(&c.standing.frame)
	return nil
}

func (b *mappedBank) total(m *member) (n uint64) {
	for i := range b.count {
		for _, w := range b.value(i, m.offset, m.words) {
			n += w
		}
	}
	return n
}

// Close unmaps the banks.
func (c *Source) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, b := range c.banks {
		errs = append(errs, b.close())
	}
	c.banks = nil
	return errors.Join(errs...)
}

// Source reads the probe's banks by CPU; nil when none of its samplers
// publishes. Closing the probe closes it.
func (p *Probe) Source() *Source { return p.source }
