// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"encoding/binary"
	"errors"
	"fmt"

	"rezolus/internal/hist"
)

// ErrCorrupt is returned for bytes that are not an encoded schema.
var ErrCorrupt = errors.New("corrupt schema")

// Limits of a decoded schema: far above what an agent makes, low enough that
// damaged or hostile bytes cannot make the reader allocate without bound.
const (
	MaxSeries = 1 << 20
	MaxWords  = 1 << 24
)

// AppendBinary appends the canonical encoding of the schema: the bytes that
// are hashed, sent and stored. docs/format.md describes them.
func (s *Schema) AppendBinary(b []byte) []byte {
	b = appendString(b, s.Source)
	descs := map[*Desc]int{}
	var order []*Desc
	for i := range s.Series {
		if d := s.Series[i].Desc; !has(descs, d) {
			descs[d] = len(order)
			order = append(order, d)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(order)))
	for _, d := range order {
		b = appendDesc(b, d)
	}
	b = binary.AppendUvarint(b, uint64(len(s.Series)))
	start := int64(0)
	for i := range s.Series {
		e := &s.Series[i]
		b = binary.AppendUvarint(b, uint64(descs[e.Desc]))
		for _, v := range e.Values {
			b = appendString(b, v)
		}
		b = binary.AppendVarint(b, e.Start-start)
		start = e.Start
	}
	return b
}

func has(m map[*Desc]int, d *Desc) bool { _, ok := m[d]; return ok }

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendDesc(b []byte, d *Desc) []byte {
	b = appendString(b, d.Name)
	b = appendString(b, d.Help)
	b = appendString(b, string(d.Unit))
	var float byte
	if d.Float {
		float = 1
	}
	b = append(b, byte(d.Kind), float, byte(d.Power))
	b = appendString(b, d.Sampler)
	b = binary.AppendUvarint(b, uint64(len(d.Keys)))
	for _, k := range d.Keys {
		b = appendString(b, k)
	}
	if d.Kind.Native() {
		b = appendSlots(b, d.Slots)
	}
	return b
}

// ParseSchema decodes what AppendBinary wrote. Every error is ErrCorrupt.
func ParseSchema(b []byte) (*Schema, error) {
	r := reader{b: b, slots: MaxWords}
	source := r.string()
	descs := make([]*Desc, r.count(len(b)))
	for i := range descs {
		descs[i] = r.desc()
	}
	series := make([]Series, min(r.count(len(b)), MaxSeries))
	start, words := int64(0), 0
	for i := range series {
		n := r.uvarint()
		if r.bad || n >= uint64(len(descs)) {
			return nil, fmt.Errorf("%w: series %d of %d", ErrCorrupt, i, len(series))
		}
		d := descs[n]
		values := make([]string, len(d.Keys))
		for j := range values {
			values[j] = r.string()
		}
		start += r.varint()
		series[i] = Series{Desc: d, Values: values, Start: start}
		if words += d.Words(); words > MaxWords {
			return nil, fmt.Errorf("%w: more than %d words", ErrCorrupt, MaxWords)
		}
	}
	if r.bad || len(r.b) != 0 {
		return nil, fmt.Errorf("%w: truncated or followed by %d bytes", ErrCorrupt, len(r.b))
	}
	s, err := NewSchema(source, series)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return s, nil
}

// reader takes values off the front of b. After the first failure bad is set
// and every value is zero.
type reader struct {
	b     []byte
	bad   bool
	slots int // so many more, of all descriptions
}

func (r *reader) fail() {
	r.b, r.bad = nil, true
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count is a number of things of at least one byte each, so at most limit.
func (r *reader) count(limit int) int {
	n := r.uvarint()
	if n > uint64(limit) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *reader) string() string {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.fail()
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) desc() *Desc {
	d := &Desc{Name: r.string(), Help: r.string(), Unit: Unit(r.string())}
	d.Kind, d.Float, d.Power = Kind(r.byte()), r.byte() == 1, hist.Power(r.byte())
	if d.Kind != Histogram {
		d.Power = 0
	} else if !d.Power.Valid() {
		r.fail() // before Words is asked for
	}
	d.Sampler = r.string()
	d.Keys = make([]string, r.count(len(r.b)))
	for i := range d.Keys {
		d.Keys[i] = r.string()
	}
	if d.Kind.Native() {
		d.Slots = r.slotRuns()
	}
	return d
}
