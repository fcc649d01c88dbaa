// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"rezolus/internal/vfs"
)

// TestCrashAtEveryOperation cuts the power after every operation of the file
// system, through rotation, sealing and dropping: what the disk holds then
// opens, has every tick that was synced, and goes on.
func TestCrashAtEveryOperation(t *testing.T) {
	o := Options{Age: 24 * time.Second, Segment: 6 * time.Second, Sync: -1}
	record := func(fsys vfs.FS, c *clock, synced func(n uint64)) {
		o := o
		o.Dir = "/ring"
		r, err := open(fsys, o)
		if err != nil {
			return
		}
		for range 50 {
			if r.Put(c.tick()) != nil {
				return
			}
			if c.n%2 == 0 {
				if r.Sync() != nil {
					return
				}
				synced(c.n)
			}
			select {
			case <-r.wake:
				if r.work(); r.hindered != nil {
					return
				}
			default:
			}
		}
		if r.close() == nil {
			synced(c.n)
		}
	}
	ops := vfs.NewFaulty(vfs.NewMem())
	record(ops, newClock(t), func(uint64) {})
	if ops.Count() < 150 {
		t.Fatalf("only %d operations", ops.Count())
	}
	for op := 1; op <= ops.Count()+1; op++ {
		mem := vfs.NewMem()
		faulty := vfs.NewFaulty(mem)
		faulty.FailAt(op, errors.New("power cut"))
		c, synced := newClock(t), uint64(0)
		record(faulty, c, func(n uint64) { synced = n })
		for seed := range uint64(8) {
			disk := mem.CrashClone(rand.NewPCG(seed, uint64(op)))
			after := *c
			r := mustOpen(t, disk, o)
			r.work()
			got := numbers(t, r)
			checkRun(t, op, got, synced, c.n)
			after.restart(true)
			after.n += 1000
			after.s.Frames = slices.Clone(c.s.Frames)
			after.s.Frames[0].Values = slices.Clone(c.s.Frames[0].Values)
			put(t, r, &after, 3)
			want := append(got, run(c.n+1001, c.n+1003)...)
			if again := numbers(t, r); len(again) < min(len(want), 20) || !slices.Equal(again, want[len(want)-len(again):]) {
				t.Fatalf("operation %d: goes on from %v to %v", op, got, again)
			}
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// checkRun checks that ticks are a run without holes, from where the ring's
// age allows to where it was synced at least.
func checkRun(t *testing.T, op int, got []uint64, synced, put uint64) {
	t.Helper()
	if len(got) == 0 {
		if synced > 0 {
			t.Fatalf("operation %d: nothing is left, %d ticks were synced", op, synced)
		}
		return
	}
	first, last := got[0], got[len(got)-1]
	if !slices.Equal(got, run(first, last)) || last < synced || last > put {
		t.Fatalf("operation %d: %v, synced to %d of %d", op, got, synced, put)
	}
	if first > 1 && last-first < 20 {
		t.Fatalf("operation %d: only %d to %d are left", op, first, last)
	}
}
