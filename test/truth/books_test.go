// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"rezolus/internal/hist"
)

// books hold what was counted against what was done.
type books struct{ wrong []string }

func (b *books) errorf(format string, args ...any) {
	b.wrong = append(b.wrong, fmt.Sprintf(format, args...))
}

func (b *books) want(d reading, series string, want uint64) {
	var got uint64
	for _, w := range d[series] {
		got += w
	}
	b.same(series, got, want)
}

func (b *books) same(what string, got, want uint64) {
	if got != want {
		b.errorf("%s = %d, want %d", what, got, want)
	}
}

// within asserts a value between two bounds.
func (b *books) within(what string, got, lo, hi uint64) {
	if got < lo || got > hi {
		b.errorf("%s = %d, want %d to %d", what, got, lo, hi)
	}
}

// near asserts that two ways to count differ by no more than slack.
func (b *books) near(what string, one, other, slack uint64) {
	if max(one, other)-min(one, other) > slack {
		b.errorf("%s: %d and %d", what, one, other)
	}
}

// bucket asserts how many values a histogram has where v belongs.
func (b *books) bucket(d reading, series string, v, want uint64) {
	words := d[series]
	if words == nil {
		words = make([]uint64, hist.Default.Buckets())
	}
	b.same(fmt.Sprintf("%s at %d", series, v), words[hist.Default.Index(v)], want)
}

// patience is for how long what others do may be in the way.
const patience = 30 * time.Second

// undisturbed does f until its books balance. They are of what the rest of the
// machine moves too, which is not in the way each time, where a fault of the
// probe is; what is the test's alone f asserts of t.
func undisturbed(t *testing.T, f func(b *books)) {
	t.Helper()
	for tries, deadline := 1, time.Now().Add(patience); ; tries++ {
		var b books
		if f(&b); len(b.wrong) == 0 {
			return
		}
		if tries >= 5 && time.Now().After(deadline) {
			t.Errorf("%d times, at last: %s", tries, strings.Join(b.wrong, "\n"))
			return
		}
	}
}
