// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"strconv"
	"strings"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// keySlots is the metadata of a column of native histograms: what each of its
// words is. One whose slots become others is another column.
const keySlots = "slots"

// floatSlots is before the slots of those whose counts are floats.
const floatSlots = "float "

// slotsOf writes slots as runs, first*number, with spaces between.
func slotsOf(d *metric.Desc) string {
	var b strings.Builder
	if d.Float {
		b.WriteString(floatSlots)
	}
	for i := 0; i < len(d.Slots); {
		first, n := d.Slots[i], 1
		for i+n < len(d.Slots) && d.Slots[i+n] == first+hist.Slot(n) {
			n++
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.Itoa(int(first)) + "*" + strconv.Itoa(n))
		i += n
	}
	return b.String()
}

// parseSlots reads what slotsOf wrote, and reports whether it is that.
func parseSlots(d *metric.Desc, text string) bool {
	text, d.Float = strings.CutPrefix(text, floatSlots)
	for run := range strings.SplitSeq(text, " ") {
		first, number, _ := strings.Cut(run, "*")
		from, err := strconv.ParseInt(first, 10, 32)
		if err != nil {
			return false
		}
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > hist.MaxSlots || len(d.Slots)+n > hist.MaxSlots {
			return false
		}
		for i := range n {
			d.Slots = append(d.Slots, hist.Slot(from)+hist.Slot(i))
		}
	}
	return hist.CheckSlots(d.Slots) == nil
}
