// SPDX-License-Identifier: Apache-2.0

package store

import (
	"math"
	"slices"
)

// Two lives of one series may stand beside one another: a cgroup that is read
// once more after its end, and the next one of its name. A column is one
// series, so one of them counts: the one that began last, from when it is
// there. The other is over then, even if it outlasts it: what it counts came
// before, and a step back to it would be taken for an increase.

// hide finds those of the picked series of a frame that do not count.
func (s *selection) hide(picks []pick) {
	s.round++
	beside := false
	for i := range picks {
		p := &picks[i]
		p.hidden = slices.Contains(p.col.over, p.start)
		beside = beside || p.col.round == s.round
		p.col.round = s.round
	}
	if !beside {
		return
	}
	newest := map[*column]*pick{}
	for i := range picks {
		p := &picks[i]
		if best := newest[p.col]; !p.hidden && (best == nil || p.start > best.start) {
			newest[p.col] = p
		}
	}
	for i := range picks {
		p := &picks[i]
		best := newest[p.col]
		if p.hidden || p == best {
			continue
		}
		if p.hidden = true; p.start < best.start {
			p.col.over = append(p.col.over, p.start)
		}
	}
}

// hide takes away from the lives of a source what does not count.
func (p *partSource) hide() {
	by := map[*column]int{}
	beside := false
	for i := range p.lives {
		l := &p.lives[i]
		if by[l.col]++; by[l.col] > 1 || l.col.over != nil {
			beside = true
		}
	}
	if !beside {
		return
	}
	for i := range p.lives {
		a := &p.lives[i]
		until := a.until
		if slices.Contains(a.col.over, a.start) {
			until = a.from
		} else if by[a.col] > 1 {
			until = p.superseded(i)
		}
		a.cut(until)
	}
	p.lives = slices.DeleteFunc(p.lives, func(l partLife) bool { return l.from >= l.until })
}

// superseded is the frame from which on a life does not count.
func (p *partSource) superseded(i int) int {
	a := &p.lives[i]
	at := math.MaxInt
	for k := range p.lives {
		b := &p.lives[k]
		from := max(a.from, b.from)
		// Of lives that began at once the first one counts.
		if b.col != a.col || k == i || from >= min(a.until, b.until) || b.start < a.start || b.start == a.start && k > i {
			continue
		}
		if at = min(at, from); b.start > a.start {
			a.col.over = append(a.col.over, a.start)
		}
	}
	return min(at, a.until)
}

// cut ends a life at a frame.
func (l *partLife) cut(until int) {
	n := until - l.from
	l.until = until
	if n <= 0 || l.lost {
		return
	}
	if !l.desc.Kind.Buckets() {
		l.word = l.word[:n]
		return
	}
	l.end = l.end[:n]
	l.step = l.step[:l.end[n-1]]
}
