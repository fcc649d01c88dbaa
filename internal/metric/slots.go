// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"encoding/binary"

	"rezolus/internal/hist"
)

// slotRun is so many slots in a row.
type slotRun struct {
	first hist.Slot
	n     int
}

// slotRuns are the runs that ascending slots are.
func slotRuns(slots []hist.Slot) (all []slotRun) {
	for i, s := range slots {
		if i == 0 || slots[i-1]+1 != s {
			all = append(all, slotRun{first: s})
		}
		all[len(all)-1].n++
	}
	return all
}

func appendSlots(b []byte, slots []hist.Slot) []byte {
	runs := slotRuns(slots)
	b = binary.AppendUvarint(b, uint64(len(runs)))
	next := hist.Slot(0)
	for _, r := range runs {
		b = binary.AppendVarint(b, int64(r.first)-int64(next))
		b = binary.AppendUvarint(b, uint64(r.n))
		next = r.first + hist.Slot(r.n)
	}
	return b
}

// slotRuns reads what appendSlots wrote. NewSchema checks the order.
func (r *reader) slotRuns() []hist.Slot {
	var all []hist.Slot
	next := int64(0)
	for range r.count(len(r.b)) {
		next += r.varint()
		n := int(min(r.uvarint(), hist.MaxSlots+1))
		if r.slots -= n; r.slots < 0 || len(all)+n > hist.MaxSlots || next < -1<<30 || next > 1<<30 {
			r.fail()
			return nil
		}
		for range n {
			all = append(all, hist.Slot(next))
			next++
		}
	}
	return all
}
