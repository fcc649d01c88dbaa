// SPDX-License-Identifier: Apache-2.0

package store

// prob is the adaptive probability that a bit is one, of 1<<16, and how often
// it was asked: the first bits count for more.
type prob struct {
	one  uint16
	seen uint16
}

// rates are the share of the way, of 1<<16, that a probability moves towards
// the bit it was asked for: 1/(n+2) for the first ones, and then a constant.
var rates = func() (r [32]int32) {
	for n := range r {
		r[n] = max(1<<16/int32(n+2), 1200)
	}
	return r
}()

// Probabilities stay between these: the bit that is not expected costs at
// most 11 bits.
const (
	probMin = 32
	probMax = 1<<16 - 32
)

func (p *prob) take(bit bool) {
	to := int32(probMin)
	if bit {
		to = probMax
	}
	p.one = uint16(int32(p.one) + int32(int64(to-int32(p.one))*int64(rates[p.seen])>>16))
	if int(p.seen) < len(rates)-1 {
		p.seen++
	}
}

// rangeEncoder is a binary arithmetic coder with carries.
type rangeEncoder struct {
	b     []byte
	low   uint64
	rng   uint32
	cache byte
	held  int // bytes that wait for a carry: the cache, and 0xff's behind it
}

func newRangeEncoder(b []byte) rangeEncoder { return rangeEncoder{b: b, rng: 1<<32 - 1, held: 1} }

func (e *rangeEncoder) bit(p *prob, bit bool) {
	bound := (e.rng >> 16) * uint32(p.one)
	if bit {
		e.rng = bound
	} else {
		e.low += uint64(bound)
		e.rng -= bound
	}
	p.take(bit)
	for e.rng < 1<<24 {
		e.rng <<= 8
		e.shift()
	}
}

// plain appends the low n bits of v, n up to 64.
func (e *rangeEncoder) plain(v uint64, n int) {
	for n--; n >= 0; n-- {
		e.rng >>= 1
		e.low += uint64(e.rng) & -(v >> n & 1)
		if e.rng < 1<<24 {
			e.rng <<= 8
			e.shift()
		}
	}
}

// shift moves the highest byte of low out.
func (e *rangeEncoder) shift() {
	if uint32(e.low) < 0xff<<24 || e.low > 1<<32-1 {
		carry := byte(e.low >> 32)
		for first := true; e.held > 0; e.held-- {
			if first {
				e.b = append(e.b, e.cache+carry)
				first = false
			} else {
				e.b = append(e.b, 0xff+carry)
			}
		}
		e.cache = byte(e.low >> 24)
	}
	e.held++
	e.low = e.low & (1<<24 - 1) << 8
}

// finish returns all bytes.
func (e *rangeEncoder) finish() []byte {
	for range 5 {
		e.shift()
	}
	return e.b
}

// rangeDecoder is the other way round. Behind the end of its bytes it reads
// zeros, and is bad once it needed more than a finished encoder writes.
type rangeDecoder struct {
	b    []byte
	code uint32
	rng  uint32
	over int // bytes read behind the end
}

func newRangeDecoder(b []byte) rangeDecoder {
	d := rangeDecoder{b: b, rng: 1<<32 - 1}
	for range 5 {
		d.shift()
	}
	return d
}

func (d *rangeDecoder) shift() {
	d.code <<= 8
	if len(d.b) == 0 {
		d.over++
		return
	}
	d.code |= uint32(d.b[0])
	d.b = d.b[1:]
}

// bad reports whether there were too few bytes.
func (d *rangeDecoder) bad() bool { return d.over > 0 }

func (d *rangeDecoder) bit(p *prob) bool {
	bound := (d.rng >> 16) * uint32(p.one)
	bit := d.code < bound
	if bit {
		d.rng = bound
	} else {
		d.code -= bound
		d.rng -= bound
	}
	p.take(bit)
	for d.rng < 1<<24 {
		d.rng <<= 8
		d.shift()
	}
	return bit
}

// plain takes n bits.
func (d *rangeDecoder) plain(n int) (v uint64) {
	for ; n > 0; n-- {
		d.rng >>= 1
		v <<= 1
		if d.code >= d.rng {
			d.code -= d.rng
			v |= 1
		}
		if d.rng < 1<<24 {
			d.rng <<= 8
			d.shift()
		}
	}
	return v
}
