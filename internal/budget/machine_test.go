// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// world is a load under the machine: what each thing costs while nothing that
// it needs is shed.
type world struct {
	*Machine
	t     *testing.T
	base  float64 // cannot be shed
	costs []Cost
	log   []string
}

func newWorld(t *testing.T, base float64, costs ...Cost) *world {
	return &world{Machine: NewMachine(1, []Lever{{"fine", Optional}, {"plain", Ordinary}, {"pace_2", Coarser},
		{"pace_4", Coarser}, {"finer", Optional}, {"other", Ordinary}}), t: t, base: base, costs: costs}
}

func cost(amount float64, levers ...string) Cost { return Cost{amount, levers} }

// reading is what is used as long as not all its levers are shed.
func (w *world) reading() Reading {
	r := Reading{Used: w.base}
	for _, c := range w.costs {
		if slices.ContainsFunc(c.Levers, func(l string) bool { return !w.isShed(l) }) {
			r.Used += c.Amount
			r.Costs = append(r.Costs, c)
		}
	}
	return r
}

// run takes n windows, and says what changed: "-fine +fine".
func (w *world) run(n int) string {
	var changes []string
	for range n {
		for _, c := range w.Step(w.reading()) {
			sign := "+"
			if c.Shed {
				sign = "-"
			}
			changes = append(changes, sign+c.Name)
			w.log = append(w.log, fmt.Sprintf("%d%s%s", w.windows, sign, c.Name))
		}
	}
	return strings.Join(changes, " ")
}

func (w *world) expect(n int, want string) {
	w.t.Helper()
	if got := w.run(n); got != want {
		w.t.Errorf("in %d windows: %q, want %q; at %.2f of the limit", n, got, want, w.reading().Used)
	}
}

func TestOneBurstShedsNothing(t *testing.T) {
	w := newWorld(t, 5, cost(0.1, "fine"))
	w.expect(1, "")
	w.base = 0.5
	w.expect(1, "")
	w.base = 5
	w.expect(1, "")
	w.expect(1, "-fine")
}

func TestTheOrderIsTheDeclaredOne(t *testing.T) {
	w := newWorld(t, 0.5, cost(0.1, "pace_2"), cost(0.1, "pace_4"), cost(0.2, "fine"), cost(0.3, "finer"), cost(0.2, "plain"), cost(0.4, "other"))
	// 1.8 are used: each class is emptied before the next, the dearest first.
	w.expect(2, "-pace_2 -pace_4 -finer -fine -other")
	if w.Level() != Ordinary || strings.Join(w.Shed(), " ") != "pace_2 pace_4 finer fine other" || w.Exhausted() {
		t.Errorf("level %v, shed %v, exhausted %v", w.Level(), w.Shed(), w.Exhausted())
	}
	w = newWorld(t, 0.6, cost(0.1, "pace_2"), cost(0.1, "pace_4"), cost(0.2, "fine"), cost(0.3, "finer"))
	// 1.3 are used, and 0.9 are aimed at: no more is shed than that takes.
	w.expect(20, "-pace_2 -pace_4 -finer")
	if w.Level() != Optional {
		t.Errorf("level %v", w.Level())
	}
}

// What costs nothing keeps nothing busy: to shed it would be of no use.
func TestTheInnocentStay(t *testing.T) {
	w := newWorld(t, 0.3, cost(0.02, "pace_2"), cost(0.01, "fine"), cost(20, "plain"), cost(0, "other"))
	w.expect(4, "-plain")
	// Nothing is shed that would not help: most of it is nobody's.
	w = newWorld(t, 3, cost(0.02, "pace_2"), cost(0.03, "fine"), cost(0.1, "plain"), cost(0.005, "other"))
	w.expect(2, "-plain")
	if w.Exhausted() {
		t.Error("it is exhausted before the next windows show it")
	}
	w.expect(10, "")
	if !w.Exhausted() || w.Level() != Ordinary {
		t.Errorf("exhausted %v, level %v", w.Exhausted(), w.Level())
	}
	w.base = 0.9
	w.expect(1, "")
	if w.Exhausted() {
		t.Error("it is exhausted within the budget")
	}
}

// A hook that serves two samplers runs until both are shed.
func TestWhatIsSharedIsSavedLast(t *testing.T) {
	w := newWorld(t, 0.2, cost(2, "fine"), cost(3, "fine", "plain"), cost(9, "plain", "essential"))
	w.expect(2, "-fine -plain") // and no more: the essential is no lever
	w.expect(10, "")
	if !w.Exhausted() {
		t.Error("it says nothing of an excess that it cannot end")
	}
}

func TestWhatWasShedComesBackOneByOne(t *testing.T) {
	w := newWorld(t, 0.1, cost(0.3, "pace_2"), cost(1, "fine"), cost(2, "finer"))
	w.expect(2, "-pace_2 -finer -fine")
	w.base = 0.8 // neither over nor calm: nothing changes
	w.costs = nil
	w.expect(100, "")
	w.base = 0.6
	w.expect(calmWindows-1, "")
	w.base = 0.8 // one window starts the count again
	w.expect(1, "")
	w.base = 0.6
	w.expect(calmWindows-1, "")
	w.expect(1, "+fine")
	w.expect(calmWindows-1, "")
	w.expect(1, "+finer")
	w.expect(calmWindows, "+pace_2")
	w.expect(100, "")
	if w.Level() != None || len(w.Shed()) != 0 {
		t.Errorf("level %v, shed %v", w.Level(), w.Shed())
	}
}

// A load that is too much as soon as its lever is back makes it stay away
// twice as long each time, to a bound; one that ended is forgiven.
func TestFlappingSlowsDown(t *testing.T) {
	w := newWorld(t, 0.2, cost(2, "fine"))
	w.expect(patience, "-fine")
	for i := range maxBackoff + 3 {
		away := calmWindows << min(i, maxBackoff)
		w.expect(away-1, "")
		w.expect(1, "+fine")
		w.expect(patience, "-fine")
	}
	w.costs = nil
	w.expect(calmWindows<<maxBackoff, "+fine")
	w.expect(calmWindows<<maxBackoff+1, "") // stays long enough
	w.costs = []Cost{cost(2, "fine")}
	w.expect(patience, "-fine")
	w.expect(calmWindows<<(maxBackoff-1), "+fine")
}

// One that flaps does not keep the others away.
func TestAFlappingLeverBlocksNobody(t *testing.T) {
	w := newWorld(t, 0.2, cost(2, "other"), cost(0, "finer"))
	w.expect(patience, "-other")
	w.costs[0].Amount, w.costs[1].Amount = 0.1, 2
	w.expect(patience, "-finer")
	w.expect(calmWindows, "+finer")
	w.expect(patience, "-finer")
	w.expect(calmWindows, "+other")
	w.expect(2*calmWindows, "+finer")
}

// Whatever the load does, a lever changes no faster than it may, what is shed
// is what was shed and not brought back, and nothing changes between the calm
// share and the limit.
func TestWhateverTheLoad(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, 0, cost(0, "pace_2"), cost(0, "pace_4"), cost(0, "fine"), cost(0, "finer", "plain"), cost(0, "plain"), cost(0, "other"))
		since := map[string]int{}
		away := map[string]bool{}
		for range 2000 {
			if r.IntN(8) == 0 {
				w.base = r.Float64() * 0.8
				for i := range w.costs {
					w.costs[i].Amount = r.ExpFloat64() * 0.2
				}
			}
			reading := w.reading()
			for _, c := range w.Step(reading) {
				least := patience
				if !c.Shed {
					least = calmWindows
				}
				if at, changed := since[c.Name]; changed && w.windows-at < least {
					t.Fatalf("seed %d: %s changed in windows %d and %d", seed, c.Name, at, w.windows)
				}
				if c.Shed == away[c.Name] || c.Shed && reading.Used <= 1 || !c.Shed && reading.Used > calmShare {
					t.Fatalf("seed %d: at %.2f of the limit %+v, and it was away: %v", seed, reading.Used, c, away[c.Name])
				}
				since[c.Name], away[c.Name] = w.windows, c.Shed
			}
			for _, l := range w.Shed() {
				if !away[l] {
					t.Fatalf("seed %d: %s is shed, and nobody was told", seed, l)
				}
			}
		}
	}
}
