// SPDX-License-Identifier: Apache-2.0

package hist

import (
	"errors"
	"math"
	"slices"
)

// Slot names a word of a native histogram, which is Prometheus's: buckets that
// grow by a factor of 2^(2^-schema), on both sides of a zero bucket. Only those
// buckets have words that may be in use, so that words need names. Slots of
// buckets ascend as the values do that the buckets count.
type Slot int32

// The slots that every native histogram has. The counts are whole numbers or
// the bits of a float64, as the metric says.
const (
	SlotZero      Slot = 0         // count of values no farther from zero than the threshold
	SlotCount     Slot = 1<<24 + 0 // count of all values; those that are no numbers are in no bucket
	SlotSum       Slot = 1<<24 + 1 // sum of all values, bits of a float64
	SlotSchema    Slot = 1<<24 + 2 // an int64: how fine the buckets are, at this moment
	SlotThreshold Slot = 1<<24 + 3 // bits of a float64

	// slotOne is the slot of bucket 0 of the positive side.
	slotOne Slot = 1 << 20
	// MaxIndex bounds the indices of buckets: at the finest schema float64
	// has none beyond +-274,944.
	MaxIndex = 1<<19 - 1
	// MaxSlots bounds the words of one native histogram.
	MaxSlots = 1 << 16
)

// The schemas of Prometheus that are exponential.
const (
	MinSchema = -4
	MaxSchema = 8
)

var fixedSlots = [...]Slot{SlotZero, SlotCount, SlotSum, SlotSchema, SlotThreshold}

// ErrSlots is returned for slots that are not those of a native histogram.
var ErrSlots = errors.New("slots of a native histogram out of order or range")

// BucketSlot is the slot of the bucket of an index, on the side of negative
// values if that is asked for. The index is within +-MaxIndex.
func BucketSlot(index int32, negative bool) Slot {
	if negative {
		return -slotOne - Slot(index)
	}
	return slotOne + Slot(index)
}

// Bucket is the index of the slot's bucket and its side; ok is false for one
// of the slots that are no such bucket.
func (s Slot) Bucket() (index int32, negative, ok bool) {
	switch {
	case s == SlotZero || s >= SlotCount:
		return 0, false, false
	case s < 0:
		return int32(-s - slotOne), true, true
	}
	return int32(s - slotOne), false, true
}

// Counts reports whether the slot's word is a count.
func (s Slot) Counts() bool { return s <= SlotCount }

// CheckSlots reports whether slots can be those of a native histogram: in
// ascending order, with those that every one has.
func CheckSlots(slots []Slot) error {
	if len(slots) > MaxSlots {
		return ErrSlots
	}
	fixed := 0
	for i, s := range slots {
		if i > 0 && slots[i-1] >= s {
			return ErrSlots
		}
		if slices.Contains(fixedSlots[:], s) {
			fixed++
		} else if index, _, _ := s.Bucket(); s > SlotCount || index < -MaxIndex || index > MaxIndex {
			return ErrSlots
		}
	}
	if fixed != len(fixedSlots) {
		return ErrSlots
	}
	return nil
}

// slotBlock is how many buckets get words together: two octaves at schema 3,
// which is what libraries choose for a growth of 10 %.
const slotBlock = 16

// Cover is slots, and those that are needed for a histogram with the given
// buckets, ascending: all of the block of each that has none, and of the
// blocks beside it, so that a distribution which moves a little needs no more
// soon. It is slots themselves if nothing is missing.
func Cover(slots []Slot, buckets []Slot) []Slot {
	if len(slots) == 0 {
		slots = fixedSlots[:]
	}
	var more []Slot
	at := 0
	for _, s := range buckets {
		for at < len(slots) && slots[at] < s {
			at++
		}
		if at < len(slots) && slots[at] == s {
			continue
		}
		index, negative, ok := s.Bucket()
		if !ok {
			continue
		}
		first := index&^(slotBlock-1) - slotBlock
		for i := max(first, -MaxIndex); i < min(first+3*slotBlock, MaxIndex+1); i++ {
			more = append(more, BucketSlot(i, negative))
		}
	}
	if more == nil {
		return slots
	}
	all := slices.Concat(slots, more)
	slices.Sort(all)
	return slices.Compact(all)
}

// Bound is the upper bound, inclusive, of the positive bucket of an index;
// that of the index before is its lower one, which it does not count. The
// largest is +Inf.
func Bound(schema int, index int32) float64 {
	if schema < 0 {
		// A float64 has the exponents -1074 to 1023; 2^1024 stands for the
		// largest number, as the bucket below that one ends there.
		return boundary(int64(index)<<-schema, 0, index, 1024>>-schema)
	}
	whole := index >> schema
	part := float64(index-whole<<schema) / float64(int(1)<<schema)
	return boundary(int64(whole), part, index, 1024<<schema)
}

func boundary(whole int64, part float64, index int32, last int32) float64 {
	if index == last {
		return math.MaxFloat64
	}
	return math.Ldexp(math.Exp2(part), int(whole))
}

// Coarser is the slot that counts what slot does, at a schema that is lower by
// so many steps.
func (s Slot) Coarser(steps int) Slot {
	index, negative, ok := s.Bucket()
	if !ok {
		return s
	}
	return BucketSlot((index-1)>>steps+1, negative)
}
