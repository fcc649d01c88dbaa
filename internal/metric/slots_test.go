// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rezolus/internal/hist"
)

// sizes is a native histogram with runs of slots on both sides.
func sizes() *Desc {
	return &Desc{Name: "sizes", Help: "sizes", Kind: NativeGauge, Float: true, Unit: Bytes, Keys: []string{"op"}, Sampler: "scrape",
		Slots: hist.Cover(nil, []hist.Slot{hist.BucketSlot(-7, true), hist.BucketSlot(-40, false), hist.BucketSlot(99, false)})}
}

func TestNativeSchemaRoundTrip(t *testing.T) {
	d := sizes()
	s := mustSchema(t, "scrape", []Series{{Desc: d, Values: []string{"read"}, Start: 7}, {Desc: d, Values: []string{"write"}}, {Desc: load}})
	if s.Words != 2*(5+3*48)+1 || s.Series[1].Off != d.Words() {
		t.Errorf("%d words, the second series at %d", s.Words, s.Series[1].Off)
	}
	b := s.AppendBinary(nil)
	got, err := ParseSchema(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, got, cmp.Comparer(slices.Equal[[]string])); diff != "" {
		t.Errorf("decoded schema differs (-want +got):\n%s", diff)
	}
	if len(b) > 100 {
		t.Errorf("%d slots take %d bytes", d.Words(), len(b))
	}
	for n := range b {
		if _, err := ParseSchema(b[:n]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("the first %d of %d bytes: error %v", n, len(b), err)
		}
	}
	more := *d
	more.Slots = hist.Cover(d.Slots, []hist.Slot{hist.BucketSlot(300, false)})
	if grown := mustSchema(t, "scrape", []Series{{Desc: &more, Values: []string{"read"}, Start: 7}}); grown.Hash == s.Hash {
		t.Error("more slots do not change the hash")
	}
}

func TestNativeSchemaRefuses(t *testing.T) {
	f := func(name string, change func(*Desc)) {
		t.Helper()
		d := sizes()
		change(d)
		if _, err := NewSchema("x", []Series{{Desc: d, Values: []string{"a"}}}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	f("one without slots", func(d *Desc) { d.Slots = nil })
	f("one whose slots descend", func(d *Desc) { slices.Reverse(d.Slots) })
	f("a counter with slots", func(d *Desc) { d.Kind, d.Float = Counter, false })
	f("one with a grouping power", func(d *Desc) { d.Power = 3 })
}

// TestRunsOfSlotsAreBounded, whatever the bytes say.
func TestRunsOfSlotsAreBounded(t *testing.T) {
	for name, runs := range map[string][][2]int64{
		"long": {{-100, hist.MaxSlots + 1}}, "many": {{-100, hist.MaxSlots}, {0, 1}}, "far": {{1 << 40, 1}}, "endless": {{0, 1 << 62}},
	} {
		b := binary.AppendUvarint(nil, uint64(len(runs)))
		for _, r := range runs {
			b = binary.AppendUvarint(binary.AppendVarint(b, r[0]), uint64(r[1]))
		}
		r := reader{b: b, slots: MaxWords}
		if got := r.slotRuns(); !r.bad || got != nil {
			t.Errorf("%s: %d slots", name, len(got))
		}
	}
	r := reader{b: appendSlots(nil, sizes().Slots), slots: len(sizes().Slots) - 1}
	if r.slotRuns(); !r.bad {
		t.Error("more slots are read than there may be in all descriptions")
	}
}
