// SPDX-License-Identifier: Apache-2.0

package store

import (
	"math"
	"testing"

	"rezolus/internal/metric"
)

func TestAWindowIsResized(t *testing.T) {
	const large, small = 1 << 20, 256 << 10
	win, w := NewWindow(large), newWorld(19)
	var all []*metric.Snapshot
	put := func(n int) {
		t.Helper()
		for range n {
			all = append(all, w.tick(t))
			if err := win.Put(all[len(all)-1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	holds := func(most int) int {
		t.Helper()
		n := int(win.Ticks())
		if b := win.Bytes(); b > most+32<<10 {
			t.Errorf("%d ticks take %d bytes of %d", n, b, most)
		}
		if err := same(selected(t, win, 0, math.MaxInt64, everything), expect(all[len(all)-n:], nil, 0, math.MaxInt64)); err != nil {
			t.Error(err)
		}
		return n
	}
	put(800)
	before := holds(large)
	win.Resize(small)
	after := holds(small)
	if after < before/8 || after > before/2 {
		t.Errorf("%d of %d ticks are left in a quarter of the memory", after, before)
	}
	put(100)
	holds(small)
	win.Resize(large)
	put(800)
	if n := holds(large); n < 2*after {
		t.Errorf("%d ticks in four times the memory of %d", n, after)
	}
}
