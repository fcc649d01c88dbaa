// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"slices"
	"time"
)

// The levers that make the agent coarser, in their order: sources that have a
// pace of their own are read at half and a quarter of it, then no source more
// often than so.
var paces = []struct {
	name   string
	factor time.Duration // of a pace
	least  time.Duration // from one read to the next
}{
	{name: "pace_2", factor: 2},
	{name: "pace_4", factor: 4},
	{name: "every_10ms", least: 10 * time.Millisecond},
	{name: "every_100ms", least: 100 * time.Millisecond},
	{name: "every_1s", least: time.Second},
}

func paceLevers() (levers []Lever) {
	for _, p := range paces {
		levers = append(levers, Lever{p.name, Coarser})
	}
	return levers
}

// Pace is how often a source is read at most whose usual pace is every, while
// the levers are shed.
func Pace(shed []string, every time.Duration) time.Duration {
	factor, least := pace(shed)
	return max(factor*every, least)
}

func pace(shed []string) (factor, least time.Duration) {
	factor = 1
	for _, p := range paces {
		if slices.Contains(shed, p.name) {
			factor, least = max(factor, p.factor), max(least, p.least)
		}
	}
	return factor, least
}

// paceCosts is what each of the levers would save: slow is what reading the
// sources with a pace of their own costs at present, fast what the others do,
// which are read once a tick.
func paceCosts(shed []string, slow, fast float64, tick time.Duration) (costs []Cost) {
	factor, least := pace(shed)
	tick = max(tick, least, 1)
	for _, p := range paces {
		if p.factor > factor {
			costs = append(costs, Cost{slow * (1 - float64(factor)/float64(p.factor)), []string{p.name}})
			slow -= costs[len(costs)-1].Amount
			factor = p.factor
		}
		if p.least > tick {
			costs = append(costs, Cost{fast * (1 - float64(tick)/float64(p.least)), []string{p.name}})
			fast -= costs[len(costs)-1].Amount
			tick = p.least
		}
	}
	return costs
}

// The levers of memory, in their order. The maps of the probes take what they
// take from the start, and are no lever: to detach a program frees nothing.
const (
	Garbage       = "garbage"        // collected sooner
	WindowHalf    = "window_half"    // of the live window's memory
	WindowQuarter = "window_quarter" //
	WindowEighth  = "window_eighth"  //
)

func memoryLevers() []Lever {
	return []Lever{{Garbage, Coarser}, {WindowHalf, Coarser}, {WindowQuarter, Coarser}, {WindowEighth, Coarser}}
}

// WindowShare is what of its memory the live window keeps, as one part of so
// many.
func WindowShare(shed []string) int {
	for _, w := range []struct {
		name string
		part int
	}{{WindowEighth, 8}, {WindowQuarter, 4}, {WindowHalf, 2}} {
		if slices.Contains(shed, w.name) {
			return w.part
		}
	}
	return 1
}
