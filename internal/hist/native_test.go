// SPDX-License-Identifier: Apache-2.0

package hist

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestSlotsAreInTheOrderOfValues(t *testing.T) {
	var before Slot = math.MinInt32
	for _, b := range []struct {
		index    int32
		negative bool
	}{{MaxIndex, true}, {8, true}, {-8, true}, {-MaxIndex, true}, {-MaxIndex, false}, {-1, false}, {0, false}, {MaxIndex, false}} {
		s := BucketSlot(b.index, b.negative)
		if index, negative, ok := s.Bucket(); index != b.index || negative != b.negative || !ok || !s.Counts() {
			t.Errorf("slot %d of %+v is of %d, %v, %v", s, b, index, negative, ok)
		}
		if s <= before || s == SlotZero || (s < SlotZero) != b.negative || s >= SlotCount {
			t.Errorf("slot %d of %+v follows %d", s, b, before)
		}
		before = s
	}
	for _, s := range fixedSlots {
		if _, _, ok := s.Bucket(); ok || s.Counts() != (s == SlotZero || s == SlotCount) {
			t.Errorf("slot %d is a bucket or no count", s)
		}
	}
}

func TestCheckSlots(t *testing.T) {
	good := Cover(nil, []Slot{BucketSlot(3, true), BucketSlot(-70, false)})
	if err := CheckSlots(good); err != nil || len(good) != 5+48+48 {
		t.Errorf("%d slots: %v", len(good), err)
	}
	for name, s := range map[string][]Slot{"none": nil, "descending": {SlotZero, SlotSum, SlotCount, SlotSchema, SlotThreshold}, "no count": {SlotZero, SlotSum, SlotSchema, SlotThreshold},
		"another": append(slices.Clone(good), SlotThreshold+1), "too far": append([]Slot{BucketSlot(MaxIndex+1, true)}, good...),
		"between": slices.Insert(slices.Clone(good), slices.Index(good, SlotZero)+1, Slot(1))} {
		if CheckSlots(s) == nil {
			t.Errorf("%s: %v is accepted", name, s)
		}
	}
}

// TestCover covers, never takes away, and says what it was given where that is
// enough.
func TestCover(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var slots []Slot
		for range 4 {
			var buckets []Slot
			for _, i := range rapid.SliceOfN(rapid.Int32Range(-MaxIndex, MaxIndex), 0, 8).Draw(t, "indices") {
				buckets = append(buckets, BucketSlot(i, rapid.Bool().Draw(t, "negative")))
			}
			slices.Sort(buckets)
			before := slots
			slots = Cover(before, buckets)
			if err := CheckSlots(slots); err != nil {
				t.Fatal(err)
			}
			for _, s := range slices.Concat(before, buckets) {
				if _, ok := slices.BinarySearch(slots, s); !ok {
					t.Fatalf("slot %d is not in", s)
				}
			}
			if again := Cover(slots, buckets); &again[0] != &slots[0] {
				t.Fatal("what is covered is made anew")
			}
		}
	})
}

// TestBounds are those of the definition: each is the one before times
// 2^(2^-schema), 1 is one of them, and a coarser bucket ends where a finer does.
func TestBounds(t *testing.T) {
	for schema := MinSchema; schema <= MaxSchema; schema++ {
		if Bound(schema, 0) != 1 {
			t.Errorf("schema %d: bound 0 is %v", schema, Bound(schema, 0))
		}
		for _, i := range []int32{-500, -17, -1, 0, 1, 2, 63, 200} {
			a, b := Bound(schema, i), Bound(schema, i+1)
			if want := math.Exp2(math.Exp2(-float64(schema))); a != 0 && b < math.MaxFloat64 && math.Abs(b/a/want-1) > 1e-12 {
				t.Errorf("schema %d: bounds %d are %v and %v", schema, i, a, b)
			}
			if schema > MinSchema && !math.IsInf(b, 1) {
				c, _, _ := BucketSlot(i+1, false).Coarser(1).Bucket()
				if upper, lower := Bound(schema-1, c), Bound(schema-1, c-1); upper < b*(1-1e-12) || lower > a*(1+1e-12) {
					t.Errorf("schema %d: (%v, %v] is not within (%v, %v]", schema, a, b, lower, upper)
				}
			}
		}
		last := int32(math.Ldexp(1024, schema))
		if Bound(schema, last) != math.MaxFloat64 || !math.IsInf(Bound(schema, last+1), 1) {
			t.Errorf("schema %d ends with %v and %v", schema, Bound(schema, last), Bound(schema, last+1))
		}
	}
	if s := SlotSum; s.Coarser(3) != s || BucketSlot(-3, true).Coarser(0) != BucketSlot(-3, true) {
		t.Error("a slot became another")
	}
}
