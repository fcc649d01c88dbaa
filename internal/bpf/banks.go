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

	mu     sync.Mutex
	schema *metric.Schema
	banks  []*mappedBank
}

type mappedBank struct {
	*bankSpec // what of it is published
	*mapping
	count int
	whole *bankSpec // as the object has it
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
		b := &mappedBank{live, memory, opts.Host.Possible, whole}
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

// Read copies the banks into the frame, without allocating.
func (c *Source) Read(f *metric.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.Schema, f.Lost = c.schema, 0
	f.Resize(c.schema.Words)
	f.Begin = c.mono()
	to := f.Values
	for _, b := range c.banks {
		for i := range b.members {
			m := &b.members[i]
			if m.perCPU {
				for _, cpu := range c.online {
					copy(to, b.value(cpu, m.offset, m.words))
					to = to[m.words:]
				}
			} else {
				b.sum(to[:m.words], m.offset)
				to = to[m.words:]
			}
			if m.lost {
				f.Lost += b.total(m)
			}
		}
	}
	f.End = c.mono()
	return nil
}

// sum sets dst to the sum over all banks of the words at offset.
func (b *mappedBank) sum(dst []uint64, offset int) {
	copy(dst, b.value(0, offset, len(dst)))
	for i := 1; i < b.count; i++ {
		words := b.value(i, offset, len(dst))
		for j, w := range words {
			dst[j] += w
		}
	}
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
