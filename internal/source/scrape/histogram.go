// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"errors"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"rezolus/internal/hist"
)

// histogram is the message of that name, without its classic buckets. It may
// be a classic histogram, a native one, or both.
type histogram struct {
	count, zero           uint64
	countFloat            float64
	zeroFloat             float64
	sum, threshold        float64
	schema                int64
	negative, positive    []span
	fewer, more           []int64 // counts of negative and positive buckets, as differences
	fewerFloat, moreFloat []float64
	classic               bool // there are classic buckets
	tooMany               bool
}

// read reads all but the classic buckets.
func (h *histogram) read(b []byte, created *int64) error {
	*h = histogram{negative: h.negative[:0], positive: h.positive[:0], fewer: h.fewer[:0], more: h.more[:0],
		fewerFloat: h.fewerFloat[:0], moreFloat: h.moreFloat[:0]}
	return fields(b, func(field protowire.Number, bytes []byte, number uint64) (err error) {
		switch field {
		case 1:
			h.count = number
		case 2:
			h.sum = math.Float64frombits(number)
		case 3:
			h.classic = true
		case 4:
			h.countFloat = math.Float64frombits(number)
		case 5:
			h.schema = protowire.DecodeZigZag(number)
		case 6:
			h.threshold = math.Float64frombits(number)
		case 7:
			h.zero = number
		case 8:
			h.zeroFloat = math.Float64frombits(number)
		case 9:
			h.negative, err = h.span(h.negative, bytes)
		case 10:
			h.fewer, err = numbers(h, h.fewer, bytes, number, protowire.ConsumeVarint, protowire.DecodeZigZag)
		case 11:
			h.fewerFloat, err = numbers(h, h.fewerFloat, bytes, number, protowire.ConsumeFixed64, math.Float64frombits)
		case 12:
			h.positive, err = h.span(h.positive, bytes)
		case 13:
			h.more, err = numbers(h, h.more, bytes, number, protowire.ConsumeVarint, protowire.DecodeZigZag)
		case 14:
			h.moreFloat, err = numbers(h, h.moreFloat, bytes, number, protowire.ConsumeFixed64, math.Float64frombits)
		case 15:
			*created, err = moment(bytes)
		}
		return err
	})
}

// maxBuckets bounds what is kept of a native histogram that is not taken.
const maxBuckets = hist.MaxSlots

func (h *histogram) span(all []span, b []byte) ([]span, error) {
	if h.tooMany = h.tooMany || len(all) >= maxBuckets; h.tooMany {
		return all, nil
	}
	var s span
	err := fields(b, func(field protowire.Number, _ []byte, number uint64) error {
		switch field {
		case 1:
			s.offset = int64(int32(protowire.DecodeZigZag(number)))
		case 2:
			s.length = number
		}
		return nil
	})
	return append(all, s), err
}

// numbers takes one number of a field that may come again and again, or many
// that are packed.
func numbers[T any](h *histogram, all []T, packed []byte, one uint64, consume func([]byte) (uint64, int), decode func(uint64) T) ([]T, error) {
	if packed == nil {
		if h.tooMany = h.tooMany || len(all) >= maxBuckets; h.tooMany {
			return all, nil
		}
		return append(all, decode(one)), nil
	}
	for len(packed) > 0 {
		v, n := consume(packed)
		if n < 0 {
			return all, errWire
		}
		if packed = packed[n:]; len(all) >= maxBuckets {
			h.tooMany = true
			return all, nil
		}
		all = append(all, decode(v))
	}
	return all, nil
}

// isNative reports whether there is a native histogram: one without a single
// value has a zero bucket or a span nevertheless.
func (h *histogram) isNative() bool {
	return len(h.positive) > 0 || len(h.negative) > 0 || h.threshold > 0 || h.zero > 0 || h.zeroFloat > 0
}

// native makes n the native histogram, if that does not contradict itself.
func (h *histogram) native(n *nativeHistogram) bool {
	*n = nativeHistogram{schema: int(h.schema), threshold: h.threshold, sum: h.sum, count: h.count, zero: h.zero,
		float:   h.countFloat > 0 || h.zeroFloat > 0 || len(h.fewerFloat) > 0 || len(h.moreFloat) > 0,
		buckets: n.buckets[:0], counts: n.counts[:0]}
	if n.float {
		n.count, n.zero = math.Float64bits(h.countFloat+0), math.Float64bits(h.zeroFloat+0)
	}
	return !h.tooMany && h.schema >= hist.MinSchema && h.schema <= hist.MaxSchema && h.threshold >= 0 && h.countFloat >= 0 && h.zeroFloat >= 0 &&
		n.side(h.negative, h.fewer, h.fewerFloat, true) && n.side(h.positive, h.more, h.moreFloat, false)
}

// histogram takes a histogram: the native one, the classic one, or both.
func (p *protobuf) histogram() error {
	h := &p.decoded
	if err := h.read(p.value, &p.created); err != nil {
		return err
	}
	if h.isNative() {
		kind := native
		if p.known.typ == typeGaugeHistogram {
			kind = nativeGauge
		}
		if !h.native(&p.native) {
			p.drops[badHistogram]++
		} else {
			p.buckets = &p.native
			err := p.take(sample{role: 'n', kind: kind, scaled: true}, reading{})
			if p.buckets = nil; err != nil || !h.classic {
				return err
			}
		}
		if !h.classic {
			return nil
		}
	}
	return p.classic(h)
}

// classic takes the classic buckets, and the one above all of them, which may
// be left out.
func (p *protobuf) classic(h *histogram) error {
	count := whole(h.count)
	if h.countFloat > 0 {
		count = number(h.countFloat)
	}
	counts, suffixes := counter, [2]string{"_sum", "_count"}
	if p.known.typ == typeGaugeHistogram {
		counts, suffixes = gauge, [2]string{"_gsum", "_gcount"}
	}
	all := false
	bucket := func(upper float64, r reading) error {
		all = all || math.IsInf(upper, 1)
		return p.take(sample{role: 'b', suffix: "_bucket", label: "le", bound: upper, kind: counts}, r)
	}
	err := fields(p.value, func(field protowire.Number, bytes []byte, _ uint64) error {
		if field != 3 {
			return nil
		}
		var upper, float float64
		var n uint64
		err := fields(bytes, func(field protowire.Number, _ []byte, number uint64) error {
			switch field {
			case 1:
				n = number
			case 2:
				upper = math.Float64frombits(number)
			case 4:
				float = math.Float64frombits(number)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if float > 0 {
			return bucket(upper, number(float))
		}
		return bucket(upper, whole(n))
	})
	if err == nil && !all {
		err = bucket(math.Inf(1), count)
	}
	return errors.Join(err, p.take(sample{role: 's', suffix: suffixes[0], kind: gauge, scaled: true}, number(h.sum)),
		p.take(sample{role: 'c', suffix: suffixes[1], kind: counts}, count))
}
