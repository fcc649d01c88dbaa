// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rezolus/internal/metric"
	"rezolus/internal/vfs"
)

// sealed is a recording in rows as one in columns, in segments of at least so
// many bytes of changes.
func sealed(t testing.TB, rows []byte, changes int) []byte {
	t.Helper()
	out := appendHeader(nil)
	s := newSealer(func(b []byte) error { out = append(out, b...); return nil })
	s.c.limit = changes
	for records := NewRecords(bytes.NewReader(rows)); ; {
		rec, err := records.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = s.record(rec)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.flush(); err != nil {
		t.Fatal(err)
	}
	return frontRecord(out, TypeEnd, flagSkip, s.total.append)
}

// anyRecording is what agents recorded through two lives, a gap and two steps
// of the clock; over is when series ended.
func anyRecording(t testing.TB, rt *rapid.T) (all []*metric.Snapshot, b []byte, over map[int]int64) {
	w := newWorld(rapid.Uint64().Draw(rt, "seed"))
	e := NewEncoder(EncoderOptions{KeyEvery: rapid.IntRange(1, 9).Draw(rt, "key every")})
	over = map[int]int64{}
	for part := range 4 {
		switch part {
		case 1:
			over[len(all)-1] = w.wall + second
			w.wall += 3600 * second
			w.restart()
		case 2:
			over[len(all)-1] = w.wall + second
			b = e.AppendGap(b, Gap{From: w.wall + second, To: w.wall + 9*second, Ticks: 9, Reason: "test"})
			w.wall += 10 * second
		case 3:
			w.wall += 3600 * second
		}
		for range rapid.IntRange(1, 12).Draw(rt, "ticks") {
			s := w.tick(t)
			all = append(all, s)
			var err error
			if b, err = e.Append(b, s); err != nil {
				rt.Fatal(err)
			}
		}
	}
	return all, b, over
}

func TestSealedIsWhatWasPut(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		all, rows, over := anyRecording(t, rt)
		b := sealed(t, rows, rapid.SampledFrom([]int{0, 40, 1 << 20}).Draw(rt, "changes"))
		over[len(all)-1] = all[len(all)-1].Wall + second // it is closed
		r := open(t, b)
		if info, want := r.Info(), open(t, rows).Info(); info.Ticks != want.Ticks || info.Missed != want.Missed || len(info.Damage) > 0 ||
			len(info.Gaps) != 1 || len(info.Runs) != 2 || info.Interval != want.Interval || info.Series > 3*want.Series+3 {
			rt.Fatalf("info %+v, want %+v", info, want)
		}
		from := all[rapid.IntRange(0, len(all)-1).Draw(rt, "from")].Wall
		to := all[rapid.IntRange(0, len(all)-1).Draw(rt, "to")].Wall + rapid.Int64Range(0, 3*second).Draw(rt, "more")
		if err := same(selected(t, r, from, to, everything), expect(all, over, from, to)); err != nil {
			rt.Fatal(err)
		}
		wait := func(f []flat) (out []flat) {
			for _, c := range f {
				if strings.HasPrefix(c.id, "wait\x00") {
					out = append(out, c)
				}
			}
			return out
		}
		got := selected(t, r, math.MinInt64, to, func(s *metric.Series) bool { return s.Desc.Name == "wait" })
		if err := same(got, wait(expect(all, over, math.MinInt64, to))); err != nil {
			rt.Fatal(err)
		}
		ids := map[string]bool{}
		if err := r.Series(from, to, func(s *metric.Series) bool { ids[identity(s)] = true; return true }); err != nil {
			rt.Fatal(err)
		}
		for _, f := range expect(all, over, from, to) {
			if !ids[f.id] {
				rt.Fatalf("series %q is missing", f.id)
			}
		}
		for _, r := range []*Recording{r, open(t, rows)} {
			n := 0
			if err := r.Each(context.Background(), from, math.MaxInt64, func(s *metric.Snapshot) error {
				for all[n].Wall < from {
					n++
				}
				n++
				return equalTicks(s, all[n-1])
			}); err != nil || n != len(all) {
				rt.Fatalf("each of %d ticks, %d were seen: %v", len(all), n, err)
			}
		}
		d := NewDecoder(bytes.NewReader(b))
		for _, want := range all {
			got, err := d.Next()
			if err != nil {
				rt.Fatal(err)
			}
			if err := equalTicks(got, want); err != nil {
				rt.Fatal(err)
			}
		}
		if _, err := d.Next(); err != io.EOF || !d.Closed() {
			rt.Fatalf("after the last tick: %v, closed %v", err, d.Closed())
		}
	})
}

// segmentOf is a recording of one segment with the given bodies, whose
// checksums are right.
func segmentOf(ticks uint64, schema *metric.Schema, dir []byte, blocks ...[]byte) []byte {
	var z packer
	b := frontRecord(appendHeader(nil), TypeRun, 0, (&runFront{chain: 7}).append)
	body := schema.AppendBinary(nil)
	d := dictFront{hash: schema.Hash, words: uint64(schema.Words), series: uint64(len(schema.Series)), size: uint64(len(body)), source: schema.Source}
	b = z.record(b, TypeDict, d.append, body)
	var follow []byte
	for i, k := range blocks {
		f := blockFront{chain: 7, index: uint64(i), size: uint64(len(k))}
		follow = z.record(follow, TypeBlock, f.append, k)
	}
	f := segmentFront{chain: 7, ticks: ticks, first: 1, last: 1 << 40, follow: uint64(len(follow)), size: uint64(len(dir))}
	return append(z.record(b, TypeSegment, f.append, dir), follow...)
}

// FuzzSegment gives the readers of a segment bodies whose checksums are
// right.
func FuzzSegment(f *testing.F) {
	s := newWorld(8).tick(f)
	schema := s.Frames[0].Schema
	source := segmentSource{dict: schema.Hash, series: len(schema.Series), frames: 3, rows: []uint16{0, 1, 3},
		uses: []schemaUse{{0, []int32{0}}, {1, nil}}}
	dir := directory{sources: []segmentSource{source}, blocks: []segmentBlock{{bytes: 30}, {bytes: 30}, {bytes: 30, columns: 1}}}
	f.Add(uint16(4), dir.append(nil), []byte{2, 0, 5, 2, 0, 5}, []byte{2, 0, 1}, []byte{2, 0, 9})
	f.Fuzz(func(t *testing.T, ticks uint16, dir, times, windows, columns []byte) {
		b := segmentOf(uint64(ticks), schema, dir, times, windows, columns)
		d := NewDecoder(bytes.NewReader(b))
		for {
			if _, err := d.Next(); err != nil {
				if err != io.EOF && !damaged(err) {
					t.Fatalf("error %v is not ErrCorrupt", err)
				}
				break
			}
		}
		r := open(t, b)
		if _, err := r.Select(context.Background(), math.MinInt64, math.MaxInt64, everything); err != nil {
			t.Fatal(err)
		}
		if _, err := Copy(context.Background(), vfs.NewMem(), "x", CopyOptions{From: 5, To: 1 << 30}, r); err != nil {
			t.Fatal(err)
		}
	})
}

// Ticks in which nothing changes take memory all the same: a segment does not
// hold any number of them.
func TestASegmentHasSoManyFrames(t *testing.T) {
	const sources, ticks = 4, 40_000
	tick := metric.Snapshot{Run: &metric.Run{}, Interval: 1e6, Frames: make([]metric.Frame, sources)}
	for i := range tick.Frames {
		schema, err := metric.NewSchema(fmt.Sprint("source", i), []metric.Series{{Desc: descLoad}})
		if err != nil {
			t.Fatal(err)
		}
		tick.Frames[i] = metric.Frame{Schema: schema, Values: []uint64{7}}
	}
	var segments []uint64
	s := newSealer(func(b []byte) error {
		for len(b) > 0 {
			rec, err := parseRecord(b)
			if err != nil {
				return err
			}
			if rec.Type == TypeSegment {
				f, err := parseSegment(rec)
				if err != nil {
					return err
				}
				segments = append(segments, f.ticks)
			}
			b = b[len(rec.Raw):]
		}
		return nil
	})
	e, buf := NewEncoder(EncoderOptions{}), []byte(nil)
	e.headed = true
	for range ticks {
		tick.Seq, tick.Wall, tick.Mono = tick.Seq+1, tick.Wall+1e6, tick.Mono+1e6
		var err error
		if buf, err = e.Append(buf[:0], &tick); err != nil {
			t.Fatal(err)
		}
		for b := buf; len(b) > 0; {
			rec, err := parseRecord(b)
			if err == nil {
				err = s.record(rec)
			}
			if err != nil {
				t.Fatal(err)
			}
			b = b[len(rec.Raw):]
		}
	}
	if err := s.flush(); err != nil {
		t.Fatal(err)
	}
	const each = sealFrames / sources
	if want := []uint64{each, each, ticks - 2*each}; !slices.Equal(segments, want) {
		t.Errorf("segments of %d ticks, want %d", segments, want)
	}
}
