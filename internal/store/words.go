// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"rezolus/internal/metric"
)

// How the n values of one word of a segment are coded. The first value
// stands before; these are the n-1 steps from one to the next.
const (
	formConst  = iota // there are none but zero
	formSparse        // the number of steps that are zero, a step that is not, ...
	formDelta         // every step
	formSmooth        // every step, as its distance from what steps were lately
	formLast          // every step, as its distance from the one before
	formLevel         // every value, as its distance from what values were lately
	forms
)

// The head of a scalar's column is its form and these.
const (
	headFactor   = 1 << 3 // a factor of all steps follows
	headUnsigned = 1 << 4 // no step is negative
	headDecimal  = 5      // from this bit on: 1 + decimal places of the floats
)

// steps are the changes of one word: at[i] is the value after which it
// changed, from 0, and by[i] by how much.
type steps struct {
	n  int // values - 1
	at []uint16
	by []uint64
}

// before is the first n steps.
func (s steps) before(n int) steps {
	if s.n > n {
		k, _ := slices.BinarySearch(s.at, uint16(n))
		s = steps{n: n, at: s.at[:k], by: s.by[:k]}
	}
	return s
}

// signs reports whether any step is negative.
func (s *steps) unsigned() bool {
	for _, d := range s.by {
		if int64(d) < 0 {
			return false
		}
	}
	return true
}

// factor is the greatest common divisor of all steps.
func (s *steps) factor() uint64 {
	var g uint64
	for _, d := range s.by {
		if int64(d) < 0 {
			d = -d
		}
		for d != 0 {
			g, d = d, g%d
		}
		if g == 1 {
			break
		}
	}
	return g
}

// coder codes the steps of words. Its two states go on from one bucket of a
// histogram to the next: neighbours are alike.
type coder struct {
	run, step adapt
}

// write appends the steps, each divided by g, in a form.
func (c *coder) write(w *bitWriter, form int, s *steps, g uint64, unsigned bool) {
	if form == formSparse {
		c.writeSparse(w, s, g, unsigned)
		return
	}
	p := predictor{form: form}
	at := 0
	for i := range s.n {
		var d uint64
		if at < len(s.at) && int(s.at[at]) == i {
			d = divide(s.by[at], g)
			at++
		}
		if unsigned && form == formDelta {
			w.rice(&c.step, d)
		} else {
			w.rice(&c.step, zigzag(p.residue(d)))
		}
	}
}

func (c *coder) writeSparse(w *bitWriter, s *steps, g uint64, unsigned bool) {
	next := 0
	for i, at := range s.at {
		w.rice(&c.run, uint64(int(at)-next))
		next = int(at) + 1
		d := divide(s.by[i], g)
		if !unsigned {
			d = zigzag(d)
		}
		w.rice(&c.step, d-1)
	}
	if next < s.n {
		w.rice(&c.run, uint64(s.n-next))
	}
}

// divide is the step d in units of g, which divides it.
func divide(d, g uint64) uint64 {
	if g <= 1 {
		return d
	}
	if int64(d) < 0 {
		return -(-d / g)
	}
	return d / g
}

// read calls f for every step of n that is not zero, in order, as far as the
// reader goes.
func (c *coder) read(r *bitReader, form, n int, unsigned bool, f func(i int, d uint64)) {
	if form == formSparse {
		for i := 0; i < n && !r.bad; i++ {
			run := r.rice(&c.run)
			if run >= uint64(n-i) {
				r.bad = r.bad || run > uint64(n-i)
				return
			}
			i += int(run)
			d := r.rice(&c.step) + 1
			if !unsigned {
				d = unzigzag(d)
			}
			f(i, d)
		}
		return
	}
	p := predictor{form: form}
	for i := 0; i < n && !r.bad; i++ {
		d := r.rice(&c.step)
		if !unsigned || form != formDelta {
			d = p.step(unzigzag(d))
		}
		if d != 0 {
			f(i, d)
		}
	}
}

// predictor says what the next step is likely to be. All of its arithmetic
// is modulo 2^64 and the same on both sides.
type predictor struct {
	form   int
	primed bool
	mean   int64 // 16 times
	last   uint64
}

func (p *predictor) guess() uint64 {
	switch p.form {
	case formLast:
		return p.last
	case formSmooth:
		return uint64(p.mean >> 4)
	case formLevel:
		return uint64(p.mean>>4) - p.last
	}
	return 0
}

func (p *predictor) take(d uint64) {
	switch p.form {
	case formLast:
		p.last = d
	case formSmooth:
		if !p.primed {
			p.primed, p.mean = true, int64(d)<<4
		}
		p.mean += int64(d) - p.mean>>4
	case formLevel:
		p.last += d
		p.mean += int64(p.last) - p.mean>>4
	}
}

// residue takes in a step and gives its distance from the guess.
func (p *predictor) residue(d uint64) uint64 {
	r := d - p.guess()
	p.take(d)
	return r
}

// step is the other way round.
func (p *predictor) step(r uint64) uint64 {
	d := r + p.guess()
	p.take(d)
	return d
}

// best is the form that takes the fewest bits, and how many.
func (c *coder) best(s *steps, g uint64, unsigned bool, forms ...int) (form int, size uint) {
	size = math.MaxUint
	for _, f := range forms {
		w, state := bitWriter{dry: true}, *c
		state.write(&w, f, s, g, unsigned)
		if w.size < size {
			form, size = f, w.size
		}
	}
	return form, size
}

// dense reports whether so many words change that coding every step may pay.
func (s *steps) dense() bool { return 4*len(s.at) > s.n }

// start is the state of a coder that is to code the given steps: not better
// than what follows, but near it.
func startOf(s *steps, g uint64) (c coder, run, step byte) {
	run = byte(bits.Len(uint(s.n / (len(s.at) + 1))))
	sum := 0.0
	for _, d := range s.by {
		sum += math.Abs(float64(int64(divide(d, g))))
	}
	step = byte(bits.Len64(uint64(sum / float64(len(s.by)))))
	return startAt(run, step), run, step
}

func startAt(run, step byte) coder {
	return coder{run: adapt{16 << (run % 64) >> 1}, step: adapt{16 << min(step%64, 52) >> 1}}
}

// appendWord appends the column of a counter or gauge: its first value and
// its steps, all as words. s is used as scratch.
func appendWord(dst []byte, d *metric.Desc, first uint64, s *steps) []byte {
	head := 0
	if d.Float && len(s.at) > 0 {
		if places, ok := decimal(first, s); ok {
			head = (1 + places) << headDecimal
			first = toDecimal(first, places)
		}
	}
	if len(s.at) == 0 {
		return binary.AppendUvarint(append(dst, formConst), first)
	}
	g, unsigned := s.factor(), s.unsigned()
	c, run, step := startOf(s, g)
	candidates := []int{formSparse}
	if s.dense() {
		candidates = []int{formSparse, formDelta, formSmooth, formLast}
		if d.Kind == metric.Gauge {
			candidates = append(candidates, formLevel)
		}
	}
	form, _ := c.best(s, g, unsigned, candidates...)
	head |= form
	if g > 1 {
		head |= headFactor
	}
	if unsigned {
		head |= headUnsigned
	}
	dst = binary.AppendUvarint(append(dst, byte(head)), first)
	if g > 1 {
		dst = binary.AppendUvarint(dst, g)
	}
	w := bitWriter{b: append(dst, run, step)}
	c.write(&w, form, s, g, unsigned)
	return w.finish()
}

// readWord gives the n values of a column to dst, as words.
func readWord(b []byte, n int, dst []uint64) ([]uint64, error) {
	c := cursor{b: b}
	head := c.byte()
	form, places := int(head&7), int(head>>headDecimal)-1
	v, g := c.uvarint(), uint64(1)
	at := len(dst)
	if form == formConst {
		for range n {
			dst = append(dst, v)
		}
	} else {
		if head&headFactor != 0 {
			g = c.uvarint()
		}
		state := startAt(c.byte(), c.byte())
		r := bitReader{b: c.b}
		state.read(&r, form, n-1, head&headUnsigned != 0, func(i int, d uint64) {
			for len(dst)-at <= i {
				dst = append(dst, v)
			}
			v += d * g
		})
		for len(dst)-at < n {
			dst = append(dst, v)
		}
		c.bad = c.bad || r.bad || form >= forms
	}
	if c.bad || n == 0 {
		return dst, fmt.Errorf("%w: a column", ErrCorrupt)
	}
	if places >= 0 {
		for i, v := range dst[at:] {
			dst[at+i] = math.Float64bits(float64(int64(v)) / tens[places])
		}
	}
	return dst, nil
}

var tens = [...]float64{1, 10, 100, 1e3, 1e4, 1e5, 1e6}

// toDecimal is a float's bits as an integer number of the last of its places.
func toDecimal(word uint64, places int) uint64 {
	return uint64(int64(math.Round(math.Float64frombits(word) * tens[places])))
}

// exact reports whether the float comes back bit by bit.
func exact(word uint64, places int) bool {
	v := math.Float64frombits(word) * tens[places]
	return math.Abs(v) < 1<<53 && math.Float64bits(float64(int64(toDecimal(word, places)))/tens[places]) == word
}

// decimal looks for the number of decimal places that all values have, and
// then turns the steps into those of such integers.
func decimal(first uint64, s *steps) (places int, ok bool) {
	for places = range tens {
		v := first
		ok = exact(v, places)
		for i := 0; ok && i < len(s.by); i++ {
			v += s.by[i]
			ok = exact(v, places)
		}
		if ok {
			break
		}
	}
	if !ok {
		return 0, false
	}
	v, before := first, toDecimal(first, places)
	for i := range s.by {
		v += s.by[i]
		now := toDecimal(v, places)
		s.by[i] = now - before
		before = now
	}
	return places, true
}
