// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"slices"
)

// Class is how dear a lever is to who watches. Levers of a class are pulled
// before those of the next.
type Class int

// The classes, in the order in which they are shed. What is essential is no
// lever.
const (
	None     Class = iota
	Coarser        // the same series, less often; one after the other
	Optional       // detail: the dearest first
	Ordinary       // all that is not essential: the dearest first
)

// String is the class as /status has it.
func (c Class) String() string {
	return [...]string{"none", "coarser", "fewer", "essential only"}[c]
}

// Lever is one thing that can be shed and comes back.
type Lever struct {
	Name  string
	Class Class
}

// Cost is what is saved once all the levers that keep it up are shed: a
// program that serves two samplers runs until both are gone.
type Cost struct {
	Amount float64 // in the unit of the limit
	Levers []string
}

// Reading is one window: what was used, and what of it each lever could save.
type Reading struct {
	Used  float64
	Costs []Cost
}

// Change is a lever that is to be shed, or to come back.
type Change struct {
	Lever
	Shed   bool
	Saves  float64 // about what shedding saves, in the unit of the limit
	Reason string
}

const (
	// patience is how many windows in a row must be over the limit before
	// anything is shed: one may have met a burst.
	patience = 2
	// calmShare of the limit is what must not be exceeded for calmWindows
	// before a lever comes back. Between that and the limit nothing changes.
	calmShare   = 0.7
	calmWindows = 6
	// target is the share of the limit that shedding aims at.
	target = 0.9
	// A lever that is shed again soon after it came back stays away twice as
	// long each time, up to 2^maxBackoff times.
	maxBackoff = 6
	// A lever is worth it if it saves so much of the excess, and of the
	// limit. What costs nothing stays, however much the rest does.
	worthOfExcess = 0.02
	worthOfLimit  = 0.01
)

// Machine decides what to shed and what to bring back. It knows neither time
// nor the kernel: each Step is one window.
type Machine struct {
	limit  float64
	levers []*lever // in the order of their classes

	windows    int // all of them
	over, calm int // windows in a row
	shed       []*lever
	exhausted  bool
}

type lever struct {
	Lever
	away     bool
	backoff  int
	returned int // the window it came back in; 0: was never away
}

// hold is how many windows it must be calm before the lever comes back.
func (l *lever) hold() int { return calmWindows << l.backoff }

// NewMachine returns a machine with everything in place.
func NewMachine(limit float64, levers []Lever) *Machine {
	m := &Machine{limit: limit}
	for _, l := range levers {
		m.levers = append(m.levers, &lever{Lever: l})
	}
	slices.SortStableFunc(m.levers, func(a, b *lever) int { return int(a.Class - b.Class) })
	return m
}

// Step is the next window. It returns what is to be changed, in order.
func (m *Machine) Step(r Reading) []Change {
	m.windows++
	over, calm := r.Used > m.limit, r.Used <= calmShare*m.limit
	m.over, m.calm = follow(m.over, over), follow(m.calm, calm)
	if !over {
		m.exhausted = false
	}
	switch {
	case m.over >= patience:
		return m.relieve(r)
	case calm:
		return m.restore()
	}
	return nil
}

func follow(n int, is bool) int {
	if is {
		return n + 1
	}
	return 0
}

// relieve sheds until the limit is kept, as far as the costs tell. The next
// windows correct what they do not.
func (m *Machine) relieve(r Reading) (changes []Change) {
	used := r.Used
	for used > target*m.limit {
		l, saves := m.choose(used, r.Costs)
		if l == nil {
			break
		}
		m.take(l)
		used -= saves
		changes = append(changes, Change{l.Lever, true, saves, "over the budget"})
	}
	m.exhausted = len(changes) == 0
	if !m.exhausted {
		m.over = 0
	}
	return changes
}

func (m *Machine) take(l *lever) {
	switch soon := l.returned > 0 && m.windows-l.returned <= l.hold(); {
	case soon:
		l.backoff = min(l.backoff+1, maxBackoff)
	case l.backoff > 0:
		l.backoff--
	}
	l.away = true
	m.shed = append(m.shed, l)
}

// choose is the lever to shed next: of the first class that has any that is
// worth it, the first or the dearest.
func (m *Machine) choose(used float64, costs []Cost) (best *lever, saves float64) {
	worth := max(worthOfExcess*(used-target*m.limit), worthOfLimit*m.limit)
	for _, l := range m.levers {
		if best != nil && (l.Class != best.Class || l.Class == Coarser) {
			break
		}
		if s := m.saves(l, costs); !l.away && s > saves && s >= worth {
			best, saves = l, s
		}
	}
	return best, saves
}

// saves is what ends when l is shed, too.
func (m *Machine) saves(l *lever, costs []Cost) (sum float64) {
	for _, c := range costs {
		if slices.Contains(c.Levers, l.Name) && !slices.ContainsFunc(c.Levers, func(name string) bool {
			return name != l.Name && !m.isShed(name)
		}) {
			sum += c.Amount
		}
	}
	return sum
}

func (m *Machine) isShed(name string) bool {
	return slices.ContainsFunc(m.shed, func(l *lever) bool { return l.Name == name })
}

// restore brings back one lever, the one shed last of those that were away
// long enough.
func (m *Machine) restore() []Change {
	for i := len(m.shed) - 1; i >= 0; i-- {
		l := m.shed[i]
		if m.calm < l.hold() {
			continue
		}
		m.shed = slices.Delete(m.shed, i, i+1)
		calm := m.calm
		m.calm, l.away, l.returned = 0, false, m.windows
		return []Change{{Lever: l.Lever, Reason: fmt.Sprintf("below %.0f %% of the budget for %d windows", 100*calmShare, calm)}}
	}
	return nil
}

// Shed names the levers that are shed, in the order in which they were.
func (m *Machine) Shed() (names []string) {
	for _, l := range m.shed {
		names = append(names, l.Name)
	}
	return names
}

// Level is the last class of which anything is shed.
func (m *Machine) Level() (c Class) {
	for _, l := range m.shed {
		c = max(c, l.Class)
	}
	return c
}

// Exhausted tells that the limit is exceeded, and nothing is left that would
// help.
func (m *Machine) Exhausted() bool { return m.exhausted }
