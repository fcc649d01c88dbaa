// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"math"
	"sync"

	"rezolus/internal/metric"
)

// DefaultWindow is the memory a live window takes when nothing else is said.
const DefaultWindow = 16 << 20

// Window keeps the latest ticks in memory, as many as fit. They are held as
// the records of a recording, in blocks that begin with a key tick; when
// there is no room, the oldest block goes. It is safe for concurrent use.
type Window struct {
	limit int
	block int // bytes of a block

	mu      sync.Mutex
	enc     *Encoder
	rec     []byte // scratch: one record
	blocks  []*block
	free    *block                 // one that went, to be used again
	schemas map[*metric.Schema]int // how many blocks hold each
	cost    int                    // bytes of those schemas
}

// block is one stretch in memory.
type block struct {
	stretch
	chain    uint32
	interval int64 // of the last tick
	data     []byte
	schemas  []numbered
	keys     []keyTick
	readers  int // that walk data at the moment
}

// keyTick is where in a block decoding may begin. A page asks for the last
// seconds again and again, and a block holds many minutes.
type keyTick struct {
	wall   int64
	offset int
}

type numbered struct {
	number uint64
	schema *metric.Schema
}

func (b *block) find(number uint64) *metric.Schema {
	for _, s := range b.schemas {
		if s.number == number {
			return s.schema
		}
	}
	return nil
}

// walk gives the block's ticks to a selection.
func (b *block) walk(s *selection) error {
	s.begin(b.chain)
	data := b.data
	for _, k := range b.keys {
		if k.wall <= s.from {
			data = b.data[k.offset:]
		}
	}
	for len(data) > 0 {
		rec, err := parseRecord(data)
		if err != nil {
			return err
		}
		if done, err := s.record(rec, b.hide, b.find); done || err != nil {
			return err
		}
		data = data[len(rec.Raw):]
	}
	return nil
}

// within is about how many of the block's ticks lie in [from, to].
func (b *block) within(from, to int64) int {
	if !b.shows(from, to) {
		return 0
	}
	span := min(b.last, to) - max(b.first, from)
	return int(min(int64(b.ticks), span/max(1, b.interval)+2))
}

// NewWindow returns a window of at most the given bytes, 0 for
// DefaultWindow. A window too small for two blocks of the ticks it is given
// still keeps the latest block.
func NewWindow(bytes int) *Window {
	if bytes <= 0 {
		bytes = DefaultWindow
	}
	// A 32nd is lost when the oldest block goes, and the price of its key
	// tick is small against a block.
	return &Window{limit: bytes, block: max(bytes/32, 4096), schemas: map[*metric.Schema]int{},
		enc: NewEncoder(EncoderOptions{KeyEvery: math.MaxInt, Plain: true})}
}

// Put adds a tick. It copies what it needs and, in a steady state, does not
// allocate. It never waits for a reader to decode.
func (w *Window) Put(s *metric.Snapshot) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	chain := w.enc.chain
	if err := w.enc.admit(s); err != nil {
		return fmt.Errorf("put into the window: %w", err)
	}
	w.enc.open = true
	cur := w.newest()
	if cur != nil && w.enc.chain != chain {
		cur.over = afterLast(cur.last, cur.interval)
	}
	fits := cur != nil && w.enc.chain == cur.chain && s.Wall > cur.last && w.used() <= w.limit
	key := fits && cur.ticks%DefaultKeyEvery == 0
	if fits {
		w.enc.key = w.enc.key || key
		w.rec = w.enc.appendTick(w.rec[:0], s)
		fits = len(cur.data)+len(w.rec) <= cap(cur.data)
	}
	if !fits {
		w.enc.key = true
		w.rec = w.enc.appendTick(w.rec[:0], s)
		cur = w.begin(s.Wall, len(w.rec))
	} else if key {
		cur.keys = append(cur.keys, keyTick{s.Wall, len(cur.data)})
	}
	cur.data = append(cur.data, w.rec...)
	cur.last, cur.interval = s.Wall, s.Interval
	cur.ticks++
	for i := range s.Frames {
		w.note(cur, w.enc.find(i, s.Frames[i].Schema))
	}
	return nil
}

func (w *Window) newest() *block {
	if len(w.blocks) == 0 {
		return nil
	}
	return w.blocks[len(w.blocks)-1]
}

// begin makes room for, and appends, a block that holds at least n bytes.
func (w *Window) begin(wall int64, n int) *block {
	size := max(w.block, n)
	for len(w.blocks) > 0 && w.used()+max(size-w.spare(), 0) > w.limit {
		w.evict()
	}
	if cur := w.newest(); cur != nil {
		cur.before(wall)
	}
	for i := len(w.blocks) - 1; i >= 0 && w.blocks[i].hideFrom(wall); i-- {
	}
	b := w.free
	if w.free = nil; b == nil {
		b = &block{keys: make([]keyTick, 0, 64)}
	}
	if cap(b.data) < size {
		b.data = make([]byte, 0, size)
	}
	*b = block{stretch: stretch{first: wall, last: wall, hide: math.MaxInt64}, chain: w.enc.chain,
		data: b.data[:0], schemas: b.schemas[:0], keys: b.keys[:0]}
	w.blocks = append(w.blocks, b)
	return b
}

// evict drops the oldest block. Its memory is used again unless a reader
// still walks it.
func (w *Window) evict() {
	b := w.blocks[0]
	copy(w.blocks, w.blocks[1:])
	w.blocks[len(w.blocks)-1] = nil
	w.blocks = w.blocks[:len(w.blocks)-1]
	if b.readers == 0 {
		w.free = b
	}
	for _, s := range b.schemas {
		if w.schemas[s.schema]--; w.schemas[s.schema] == 0 {
			delete(w.schemas, s.schema)
			w.cost -= schemaBytes(s.schema)
		}
	}
}

// note remembers that the block needs the slot's schema.
func (w *Window) note(b *block, sl *slot) {
	for i := range b.schemas {
		if b.schemas[i].number == sl.number {
			return
		}
	}
	b.schemas = append(b.schemas, numbered{sl.number, sl.schema})
	if w.schemas[sl.schema]++; w.schemas[sl.schema] == 1 {
		w.cost += schemaBytes(sl.schema)
	}
}

// schemaBytes is about what a schema takes in memory that is its own; names
// and label values are shared with the schemas before and after it.
func schemaBytes(s *metric.Schema) int {
	n := 128
	for i := range s.Series {
		n += 48 + 16*len(s.Series[i].Values)
	}
	return n
}

// spare is the memory of the block that is to be used again.
func (w *Window) spare() int {
	if w.free == nil {
		return 0
	}
	return cap(w.free.data)
}

// used is the memory of the window in bytes.
func (w *Window) used() int {
	n := w.cost + w.spare() + cap(w.rec) + cap(w.enc.body) + cap(w.enc.frame)
	for _, b := range w.blocks {
		n += cap(b.data) + 24*cap(b.schemas)
	}
	for _, sl := range w.enc.slots {
		n += 8 * cap(sl.prev)
	}
	return n
}

// Bytes is the memory the window takes at present: its blocks, the encoder's
// state, and the schemas its ticks need.
func (w *Window) Bytes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.used()
}

// Ticks is the number of ticks held.
func (w *Window) Ticks() (n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.blocks {
		n += b.ticks
	}
	return n
}

// Bounds implements query.Reader.
func (w *Window) Bounds() (first, last int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, b := range w.blocks {
		if i == 0 {
			first, last = b.first, b.latest()
		}
		first, last = min(first, b.first), max(last, b.latest())
	}
	return first, last
}

// hold returns what the blocks within [from, to] hold at this moment. What
// is there may be read without the lock until release is called.
func (w *Window) hold(from, to int64) (views []block, release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var held []*block
	for _, b := range w.blocks {
		if b.shows(from, to) || len(held) > 0 {
			b.readers++
			held = append(held, b)
			views = append(views, *b) // slices only ever grow behind these
		}
	}
	return views, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, b := range held {
			b.readers--
		}
	}
}

// Series implements query.Reader.
func (w *Window) Series(from, to int64, yield func(*metric.Series) bool) error {
	views, release := w.hold(from, to)
	defer release()
	seen := map[*metric.Schema]bool{}
	for i := range views {
		if !views[i].shows(from, to) {
			continue
		}
		for _, s := range views[i].schemas {
			if seen[s.schema] {
				continue
			}
			seen[s.schema] = true
			for j := range s.schema.Series {
				if !yield(&s.schema.Series[j]) {
					return nil
				}
			}
		}
	}
	return nil
}

// Select implements query.Reader.
func (w *Window) Select(ctx context.Context, from, to int64, want func(*metric.Series) bool) ([]metric.Column, error) {
	views, release := w.hold(from, to)
	defer release()
	ticks := 0
	for i := range views {
		ticks += views[i].within(from, to)
	}
	s := newSelection(ticks, from, to, want)
	for i := range views {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("select from the window: %w", err)
		}
		b := &views[i]
		if b.shows(from, to) {
			if err := b.walk(s); err != nil {
				return nil, fmt.Errorf("select from the window: %w", err)
			}
		}
		if b.over != 0 {
			s.over(b.over)
		}
	}
	return s.result(), nil
}
