// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/vfs"
)

// TestCrashAtEveryOperation cuts the power after every operation of the file
// system: the file opens, has every tick that was synced, and of the others
// only whole ones.
func TestCrashAtEveryOperation(t *testing.T) {
	all := newWorld(21).ticks(t, 8)
	record := func(fsys vfs.FS, put func(n int)) {
		w, err := Create(fsys, "/d/x.rzr", WriterOptions{Sync: -1, EncoderOptions: EncoderOptions{KeyEvery: 3}})
		if err != nil {
			return
		}
		synced := 0
		for i, s := range all {
			if w.Put(s) != nil {
				return
			}
			if i%3 == 2 {
				if w.Sync() != nil {
					return
				}
				synced = i + 1
			}
			put(synced)
		}
		if w.Close() == nil {
			put(len(all))
		}
	}
	ops := vfs.NewFaulty(vfs.NewMem())
	record(ops, func(int) {})
	for op := 1; op <= ops.Count()+1; op++ {
		mem := vfs.NewMem()
		faulty := vfs.NewFaulty(mem)
		faulty.FailAt(op, errors.New("power cut"))
		synced := 0
		record(faulty, func(n int) { synced = n })
		for seed := range uint64(20) {
			checkCrash(t, mem.CrashClone(rand.NewPCG(seed, uint64(op))), all, synced, op)
		}
	}
}

func checkCrash(t *testing.T, disk *vfs.Mem, all []*metric.Snapshot, synced, op int) {
	t.Helper()
	r, err := Open(disk, "/d/x.rzr")
	if err != nil {
		if synced == 0 && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrForeign)) {
			return // the header itself was not synced yet
		}
		t.Fatalf("operation %d: %v", op, err)
	}
	defer r.Close()
	if n := r.Info().Ticks; n < uint64(synced) || n > uint64(len(all)) {
		t.Fatalf("operation %d: %d ticks, %d were synced", op, n, synced)
	}
	truth := expect(all, nil, 0, math.MaxInt64)
	for _, f := range selected(t, r, 0, math.MaxInt64, everything) {
		for i := range truth {
			if truth[i].id != f.id {
				continue
			}
			for _, s := range f.samples {
				if !contains(truth[i].samples, s) {
					t.Fatalf("operation %d: %q has %v, which was never written", op, f.id, s)
				}
			}
		}
	}
}

func contains(all []sample, s sample) bool {
	for _, a := range all {
		if a.time == s.time {
			return same([]flat{{samples: []sample{s}}}, []flat{{samples: []sample{a}}}) == nil
		}
	}
	return false
}

func TestDiskFullLosesOnlyWhatDidNotFit(t *testing.T) {
	all := newWorld(22).ticks(t, 12)
	for space := int64(0); space < 3000; space += 37 {
		mem := vfs.NewMem()
		faulty := vfs.NewFaulty(mem)
		w, err := Create(faulty, "x.rzr", WriterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		put := func(s *metric.Snapshot) bool {
			t.Helper()
			err := w.Put(s)
			if err != nil && !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			return err == nil
		}
		faulty.SetSpace(space)
		var kept []*metric.Snapshot
		lost, missed, at := 0, uint64(0), 0
		for _, s := range all[:8] {
			// After a loss the rest does not fit either: no gap in the middle.
			if lost == 0 && put(s) {
				kept = append(kept, s)
				continue
			}
			faulty.SetSpace(0)
			if lost > 0 && put(s) {
				t.Fatal("a tick fits on a full disk")
			}
			lost++
			missed += s.Missed
		}
		at = len(kept) - 1
		r, err := Open(mem, "x.rzr")
		if err != nil {
			t.Fatal(err)
		}
		if n := r.Info(); n.Ticks != uint64(len(kept)) || len(n.Damage) > 0 {
			t.Fatalf("space %d: %+v, want %d ticks and no damage", space, n, len(kept))
		}
		faulty.SetSpace(1 << 40)
		for _, s := range all[8:] {
			if !put(s) {
				t.Fatalf("space %d: a disk with room refuses", space)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := r.Refresh(); err != nil {
			t.Fatal(err)
		}
		over := map[int]int64{len(kept) + 3: all[11].Wall + second}
		if lost > 0 && at >= 0 {
			over[at] = min(all[at].Wall+second, all[8].Wall-1)
		}
		if err := same(selected(t, r, 0, math.MaxInt64, everything), expect(append(kept, all[8:]...), over, 0, math.MaxInt64)); err != nil {
			t.Fatalf("space %d: %v", space, err)
		}
		gaps := r.Info().Gaps
		if lost == 0 && len(gaps) == 0 {
			continue
		}
		if len(gaps) != 1 || gaps[0].Ticks != uint64(lost)+missed || gaps[0].From != all[8-lost].Wall || gaps[0].To != all[7].Wall {
			t.Fatalf("space %d: gaps %+v, want one of %d ticks", space, gaps, lost)
		}
	}
}

func TestCreateKeepsWhatIsThere(t *testing.T) {
	m := vfs.NewMem()
	m.WriteFile("x.rzr", []byte("precious"))
	if _, err := Create(m, "x.rzr", WriterOptions{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create over a file: %v, want ErrExist", err)
	}
	if got := m.ReadFile("x.rzr"); string(got) != "precious" {
		t.Errorf("the file is now %q", got)
	}
	for op := 2; op <= 4; op++ { // write, sync, sync of the directory
		boom := errors.New("boom")
		f := vfs.NewFaulty(vfs.NewMem())
		f.FailAt(op, boom)
		if _, err := Create(f, "y.rzr", WriterOptions{}); !errors.Is(err, boom) {
			t.Errorf("operation %d fails: %v", op, err)
		}
		if _, err := f.Open("y.rzr"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("operation %d fails, and the file stays: %v", op, err)
		}
	}
}

func TestSyncPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := vfs.NewFaulty(vfs.NewMem())
		w, err := Create(f, "x.rzr", WriterOptions{Sync: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		before := f.Count()
		for _, s := range newWorld(23).ticks(t, 10) {
			time.Sleep(time.Second)
			if err := w.Put(s); err != nil {
				t.Fatal(err)
			}
		}
		if n := f.Count() - before; n != 10+3 {
			t.Errorf("%d operations for 10 ticks, want 10 writes and 3 syncs", n)
		}
		boom := errors.New("boom")
		f.FailAt(1, boom)
		if err := w.Sync(); !errors.Is(err, boom) {
			t.Errorf("sync: %v, want boom", err)
		}
	})
}

// follow puts the records of a stream as they are.
func follow(t *testing.T, w *Writer, b []byte) {
	t.Helper()
	for records := NewRecords(bytes.NewReader(b)); ; {
		rec, err := records.Next()
		if err == io.EOF {
			return
		}
		if err == nil {
			err = w.PutRaw(rec.Raw)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestFollowAStream keeps the bytes of two streams with a break between.
func TestFollowAStream(t *testing.T) {
	world := newWorld(24)
	first, later := world.ticks(t, 7), world.ticks(t, 6)
	m := vfs.NewMem()
	w, err := Create(m, "x.rzr", WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e := NewEncoder(EncoderOptions{KeyEvery: 4})
	var b []byte
	for _, s := range first {
		if b, err = e.Append(b, s); err != nil {
			t.Fatal(err)
		}
	}
	follow(t, w, e.AppendEnd(b))
	if err := w.WriteGap(Gap{From: first[6].Wall + second, To: later[0].Wall, Reason: "the agent did not answer"}); err != nil {
		t.Fatal(err)
	}
	b = encode(t, EncoderOptions{}, later)
	if err := w.PutRaw(b[len(b)-1:]); !errors.Is(err, ErrTruncated) {
		t.Errorf("half a record: %v", err)
	}
	last, err := parseRecord(frontRecord(nil, TypeGap, flagSkip, (&Gap{}).append))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.PutRaw(last.Raw); !errors.Is(err, errBroken) {
		t.Errorf("a record in the middle of nowhere: %v", err)
	}
	follow(t, w, b)
	if err := w.Put(world.tick(t)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Open(m, "x.rzr")
	if err != nil {
		t.Fatal(err)
	}
	if info := r.Info(); info.Ticks != 14 || !info.Closed || len(info.Gaps) != 1 || len(info.Damage) > 0 || len(info.Runs) != 1 || info.Bytes != w.Size() {
		t.Errorf("info %+v", info)
	}
	d := NewDecoder(bytes.NewReader(m.ReadFile("x.rzr")))
	for _, want := range append(first, later...) {
		got, err := d.Next()
		if err != nil {
			t.Fatal(err)
		}
		if err := equalTicks(got, want); err != nil {
			t.Fatal(err)
		}
	}
}
