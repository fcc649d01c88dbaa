// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"rezolus/internal/metric"
)

// paths lists the cgroups that have series, by slot.
func paths(t *testing.T, c *Slots) []string {
	t.Helper()
	var f metric.Frame
	if err := c.Read(&f); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range f.Schema.Series {
		name, _ := f.Schema.Series[i].Label("name")
		names = append(names, name)
	}
	return names
}

// slotOf finds a cgroup as a program does.
func slotOf(c *Slots, id uint64) uint64 {
	for i := range uint64(slotProbes) {
		cell := c.cell(id, i)
		if cell[0] == 0 {
			return 0
		}
		if cell[0] == id {
			return cell[1]
		}
	}
	return 0
}

// bump adds to a cgroup's counter as a program on another CPU would.
func bump(c *Slots, id uint64, n uint64) {
	value := (c.banks-1)*c.domain.Slots + int(slotOf(c, id))
	c.mapped[0].value(value, 0, 1)[0] = 1 // TOUCHED
	c.mapped[0].value(value, c.mapped[0].members[0].offset, 1)[0] += n
}

func cgroupsWithBank(t *testing.T, slots int) *Slots {
	t.Helper()
	c := newCgroups(t, slots)
	load(t, "rename", Options{Slots: []*Slots{c}})
	return c
}

func TestLifeOfACgroup(t *testing.T) {
	c := cgroupsWithBank(t, 8)
	a := Thing{ID: 1001, Values: []string{"/a"}}
	if got := paths(t, c); !slices.Equal(got, []string{Other}) {
		t.Fatalf("before any birth: %q", got)
	}
	c.Born([]Thing{a})
	c.Born([]Thing{a}) // told twice
	bump(c, a.ID, 23)
	got, f := values(t, c)
	if got["cgroup_task_renames /a"] != 23 || f.Schema.Series[1].Start == 0 {
		t.Errorf("after the birth: %v", got)
	}
	first := f.Schema
	if _, f = values(t, c); f.Schema != first {
		t.Error("the schema changes while nothing does")
	}
	bump(c, a.ID, 1)
	c.Died([]Thing{a})
	if slotOf(c, a.ID) != 0 {
		t.Error("programs still find a dead cgroup")
	}
	if got, f := values(t, c); got["cgroup_task_renames /a"] != 24 || f.Schema != first {
		t.Errorf("the last read after the death: %v, want 24 in the same schema", got)
	}
	if got := paths(t, c); !slices.Equal(got, []string{Other}) {
		t.Errorf("a dead cgroup goes on: %q", got)
	}
	// Its slot is clean for the next.
	b := Thing{ID: 1002, Values: []string{"/b"}}
	c.Born([]Thing{b})
	if got, _ := values(t, c); got["cgroup_task_renames /b"] != 0 {
		t.Errorf("a newborn inherits %v", got)
	}
}

func TestARestartedServiceGoesOn(t *testing.T) {
	c := cgroupsWithBank(t, 8)
	c.Born([]Thing{{ID: 1, Values: []string{"/s"}}})
	bump(c, 1, 5)
	c.Died([]Thing{{ID: 1, Values: []string{"/s"}}})
	c.Born([]Thing{{ID: 2, Values: []string{"/s"}}})
	bump(c, 2, 6)
	for range 3 {
		got, _ := values(t, c)
		if got["cgroup_task_renames /s"] != 11 {
			t.Errorf("a cgroup that came back under its path has %v, want 11", got)
		}
	}
	if got := paths(t, c); !slices.Equal(got, []string{Other, "/s"}) {
		t.Errorf("series of %q", got)
	}
}

func TestMoreCgroupsThanSlots(t *testing.T) {
	c := cgroupsWithBank(t, 4)
	var all []Thing
	for i := range 10 {
		all = append(all, Thing{ID: uint64(100 + i), Values: []string{fmt.Sprintf("/%d", i)}})
	}
	c.Born(all)
	if got := paths(t, c); !slices.Equal(got, []string{Other, "/0", "/1", "/2"}) || c.Overflow() != 7 {
		t.Fatalf("%q, %d in other", got, c.Overflow())
	}
	other := func() uint64 {
		got, _ := values(t, c)
		return got["cgroup_task_renames other"]
	}
	var grown uint64
	for range 100 { // programs of the machine begin meanwhile, and have no slot either
		before := other()
		bump(c, 105, 9) // no slot of its own
		if grown = other() - before; grown == 9 {
			break
		}
	}
	if grown != 9 {
		t.Errorf("other grew by %d, want 9", grown)
	}
	// The room that a death makes goes to one that waits.
	c.Died(all[1:2])
	for range 3 {
		paths(t, c)
	}
	if got := paths(t, c); len(got) != 4 || slices.Contains(got, "/1") || c.Overflow() != 7 {
		t.Errorf("after a death: %q, %d in other", got, c.Overflow())
	}
	// One that dies while it waits is forgotten.
	c.Died(all)
	for range 3 {
		paths(t, c)
	}
	if got := paths(t, c); !slices.Equal(got, []string{Other}) {
		t.Errorf("after all deaths: %q", got)
	}
}

func TestTheTableFindsEverybody(t *testing.T) {
	c := cgroupsWithBank(t, 1024)
	for round := range uint64(5) { // births and deaths leave deleted cells
		var all []Thing
		for i := range uint64(1000) {
			all = append(all, Thing{ID: round*7919 + i*i*31 + 1, Values: []string{fmt.Sprintf("/%d/%d", round, i)}})
		}
		c.Born(all)
		missing := 0
		for _, g := range all {
			if slotOf(c, g.ID) == 0 {
				missing++
			}
		}
		if uint64(missing) > c.Overflow() {
			t.Errorf("round %d: %d of 1,000 are not found, %d are known to be in other", round, missing, c.Overflow())
		}
		if missing > 10 {
			t.Errorf("round %d: %d of 1,000 found no cell", round, missing)
		}
		c.Died(all)
		for range 3 {
			paths(t, c)
		}
	}
}

func TestAQuietThingIsNotPublished(t *testing.T) {
	d := cgroups(8)
	d.Quiet = true
	c, err := NewSlots(testHost(), d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	load(t, "rename", Options{Slots: []*Slots{c}})
	c.Born([]Thing{{ID: 11, Values: []string{"/a"}}, {ID: 13, Values: []string{"/b"}}})
	if got := paths(t, c); len(got) != 0 {
		t.Errorf("nothing was counted, and there are series of %q", got)
	}
	bump(c, 13, 5)
	if got := paths(t, c); !slices.Equal(got, []string{"/b"}) {
		t.Errorf("something was counted for /b alone: %q", got)
	}
	bump(c, 0, 1) // no thing: Other
	if got := paths(t, c); !slices.Equal(got, []string{Other, "/b"}) {
		t.Errorf("and for others: %q", got)
	}
}

// TestThingsAfterTheEnd: who follows the things ends later, and may tell of
// some until then.
func TestThingsAfterTheEnd(t *testing.T) {
	c, err := NewSlots(testHost(), cgroups(8))
	if err != nil {
		t.Fatal(err)
	}
	a := Thing{ID: 7, Values: []string{"/a"}}
	c.Born([]Thing{a})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c.Died([]Thing{a})
	c.Born([]Thing{{ID: 8, Values: []string{"/b"}}})
	if c.byID[8] != nil || c.byID[7].state != resident {
		t.Error("slots that are closed take things in, or let them go")
	}
}

// TestSlotsOfAnyNumber: kernels before 5.11 count maps against the limit of
// locked memory, which is small to begin with (64 KiB).
func TestSlotsOfAnyNumber(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = min(limit.Cur, 64<<10)
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(raiseMemlock)
	s := newCgroups(t, 4096)
	s.Born([]Thing{{ID: 23, Values: []string{"a"}}})
	if f := new(metric.Frame); s.Read(f) != nil || len(f.Schema.Series) != 0 {
		t.Errorf("slots without banks have %d series", len(f.Schema.Series))
	}
}
