// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rezolus/internal/metric"
)

// equalTicks reports the first difference between two snapshots.
func equalTicks(got, want *metric.Snapshot) error {
	a, b := *got, *want
	if *a.Run != *b.Run {
		return fmt.Errorf("tick %d: run %v, want %v", want.Seq, a.Run, b.Run)
	}
	if a.Seq != b.Seq || a.Wall != b.Wall || a.Mono != b.Mono || a.Interval != b.Interval || a.Missed != b.Missed {
		return fmt.Errorf("tick %d: front differs", want.Seq)
	}
	if len(a.Frames) != len(b.Frames) {
		return fmt.Errorf("tick %d: %d frames, want %d", want.Seq, len(a.Frames), len(b.Frames))
	}
	for i := range a.Frames {
		f, g := &a.Frames[i], &b.Frames[i]
		if f.Schema.Hash != g.Schema.Hash || f.Begin != g.Begin || f.End != g.End || f.Lost != g.Lost || !slices.Equal(f.Values, g.Values) {
			return fmt.Errorf("tick %d: frame %d differs", want.Seq, i)
		}
	}
	return nil
}

func encode(t testing.TB, o EncoderOptions, all []*metric.Snapshot) []byte {
	t.Helper()
	e := NewEncoder(o)
	var b []byte
	for _, s := range all {
		var err error
		if b, err = e.Append(b, s); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func TestStreamRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rapid.Uint64().Draw(rt, "seed"))
		o := EncoderOptions{Meta: map[string]string{"k": "v"}, KeyEvery: rapid.IntRange(1, 9).Draw(rt, "key every"),
			Plain: rapid.Bool().Draw(rt, "plain")}
		all := w.ticks(t, rapid.IntRange(1, 20).Draw(rt, "ticks"))
		w.restart()
		all = append(all, w.ticks(t, 3)...)
		w.wall -= 3600 * second // the clock is set back
		all = append(all, w.ticks(t, 3)...)
		d := NewDecoder(bytes.NewReader(encode(t, o, all)))
		for _, want := range all {
			got, err := d.Next()
			if err != nil {
				rt.Fatal(err)
			}
			if err := equalTicks(got, want); err != nil {
				rt.Fatal(err)
			}
		}
		if _, err := d.Next(); err != io.EOF {
			rt.Fatalf("after the last tick: %v", err)
		}
		if d.Meta()["k"] != "v" {
			rt.Fatalf("metadata %v", d.Meta())
		}
	})
}

// deltas appends the tokens of cur against prev.
func deltas(dst []byte, prev, cur []uint64) []byte {
	sl := slot{prev: prev, stamps: make([]uint64, metric.Blocks(len(prev)))}
	return sl.appendDeltas(dst, &metric.Frame{Values: cur})
}

// TestStampsChangeNoByte encodes the same ticks with stamps and without.
func TestStampsChangeNoByte(t *testing.T) {
	plain, stamped := newWorld(3).ticks(t, 300), newWorld(3).ticks(t, 300)
	last := map[string]*metric.Frame{}
	for i := range stamped {
		for j := range stamped[i].Frames {
			f := &stamped[i].Frames[j]
			before := last[f.Schema.Source]
			for block := range metric.Blocks(len(f.Values)) {
				at := block * metric.Block
				end := min(at+metric.Block, len(f.Values))
				stamp := uint64(i + 1)
				if before != nil && before.Schema == f.Schema && slices.Equal(before.Values[at:end], f.Values[at:end]) {
					stamp = before.Stamps[block]
				}
				f.Stamps = append(f.Stamps, stamp)
			}
			if i%7 == 3 && j == 0 { // it does not always know
				clear(f.Stamps)
			}
			if i%11 == 5 && j == 1 {
				f.Stamps = nil
				delete(last, f.Schema.Source)
				continue
			}
			last[f.Schema.Source] = f
		}
	}
	o := EncoderOptions{Plain: true, KeyEvery: 50}
	a, b := NewEncoder(o), NewEncoder(o)
	b.chain = a.chain
	for i := range plain {
		want, err := a.Append(nil, plain[i])
		if err != nil {
			t.Fatal(err)
		}
		got, err := b.Append(nil, stamped[i])
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("tick %d is % x with stamps, % x without, %v", i, got, want, err)
		}
	}
}

func TestDeltasOfAnyWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(0, 300), rapid.Uint64())
		n := rapid.IntRange(0, 70).Draw(t, "n")
		prev := rapid.SliceOfN(word, n, n).Draw(t, "prev")
		cur := slices.Clone(prev)
		for range rapid.IntRange(0, 5).Draw(t, "changes") {
			if n > 0 {
				cur[rapid.IntRange(0, n-1).Draw(t, "at")] = word.Draw(t, "word")
			}
		}
		got := slices.Clone(prev)
		b := deltas(nil, prev, cur)
		if err := addDeltas(b, got); err != nil || !slices.Equal(got, cur) || !slices.Equal(prev, cur) {
			t.Fatalf("%v becomes %v, want %v: %v", prev, got, cur, err)
		}
	})
}

// TestTokensAreAsDocumented is the example of docs/format.md.
func TestTokensAreAsDocumented(t *testing.T) {
	prev, cur := []uint64{5, 5, 0, 0, 0, 9, 0, 0}, []uint64{7, 5, 0, 0, 0, 8, 0, 0}
	if got, want := deltas(nil, prev, cur), []byte{4, 0, 4, 1}; !bytes.Equal(got, want) {
		t.Errorf("tokens % x, want % x", got, want)
	}
}

func TestDecoderTellsCutFromCorrupt(t *testing.T) {
	b := encode(t, EncoderOptions{}, newWorld(1).ticks(t, 4))
	read := func(b []byte) (n int, err error) {
		for d := NewDecoder(bytes.NewReader(b)); ; n++ {
			if _, err = d.Next(); err != nil {
				return n, err
			}
		}
	}
	for n := range b {
		if _, err := read(b[:n]); err != io.EOF && !errors.Is(err, ErrTruncated) {
			t.Fatalf("%d of %d bytes: %v", n, len(b), err)
		}
		bad := slices.Clone(b)
		bad[n] ^= 1 << (n % 8)
		if ticks, err := read(bad); ticks == 4 || !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrForeign) {
			t.Fatalf("byte %d changed: %d ticks, %v", n, ticks, err)
		}
	}
}

func TestHeaderSaysWhatAFileIs(t *testing.T) {
	f := func(b string, want error, says ...string) {
		t.Helper()
		err := checkHeader([]byte(b))
		if !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", b, err, want)
		}
		for _, s := range says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%q: %q does not say %q", b, err, s)
			}
		}
	}
	good := string(appendHeader(nil))
	f(good, nil)
	f(good[:9], ErrTruncated)
	f("", ErrTruncated)
	f("PAR1\x15\x04\x15\x10", ErrForeign, "Parquet")
	f("PK\x03\x04", ErrForeign, "zip")
	f("hello", ErrForeign, `"hello"`)
	f(good[:14]+"xx", ErrCorrupt)
	newer := []byte(good)
	newer[8] = 9
	newer = newer[:12]
	f(string(appendSum(newer)), ErrUnsupported, "version 9", "version 1")
}

func TestUnknownRecords(t *testing.T) {
	all := newWorld(2).ticks(t, 2)
	e := NewEncoder(EncoderOptions{})
	b, err := e.Append(nil, all[0])
	if err != nil {
		t.Fatal(err)
	}
	f := func(flags byte, want error) {
		t.Helper()
		b := frontRecord(slices.Clone(b), 77, flags, func(b []byte) []byte { return append(b, "new"...) })
		d := NewDecoder(bytes.NewReader(b))
		if _, err := d.Next(); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Next(); !errors.Is(err, want) {
			t.Errorf("flags %#x: %v, want %v", flags, err, want)
		}
	}
	f(flagSkip, io.EOF)
	f(0, ErrUnsupported)
}

func TestEncoderRefuses(t *testing.T) {
	w := newWorld(3)
	s := w.tick(t)
	for len(s.Frames) == 0 {
		s = w.tick(t)
	}
	f := func(want string, s *metric.Snapshot) {
		t.Helper()
		b, err := NewEncoder(EncoderOptions{}).Append([]byte("x"), s)
		if err == nil || !strings.Contains(err.Error(), want) || string(b) != "x" {
			t.Errorf("%v and %d bytes, want an error that says %q and nothing appended", err, len(b), want)
		}
	}
	f("no run", &metric.Snapshot{})
	f("two frames", &metric.Snapshot{Run: w.run, Frames: []metric.Frame{s.Frames[0], s.Frames[0]}})
	f("words", &metric.Snapshot{Run: w.run, Frames: []metric.Frame{{Schema: s.Frames[0].Schema}}})
}

// steady is a world whose schemas do not change any more.
func steady(t testing.TB, s *metric.Snapshot) func() *metric.Snapshot {
	r := rand.New(rand.NewPCG(1, 2))
	return func() *metric.Snapshot {
		s.Seq++
		s.Wall += second
		s.Mono += second
		for i := range s.Frames {
			if v := s.Frames[i].Values; len(v) > 0 {
				v[r.IntN(len(v))] += r.Uint64N(1000)
			}
		}
		return s
	}
}

func TestSteadyTicksDoNotAllocate(t *testing.T) {
	f := func(name string, put func(s *metric.Snapshot) error) {
		t.Helper()
		next := steady(t, newWorld(4).tick(t))
		// Scratch memory grows with the largest tick so far: let it settle.
		for range 3000 {
			if err := put(next()); err != nil {
				t.Fatal(err)
			}
		}
		// All in one run: AllocsPerRun rounds a mean down, and would hide
		// an allocation in every block or key tick.
		if a := testing.AllocsPerRun(1, func() {
			for range 500 {
				if err := put(next()); err != nil {
					t.Fatal(err)
				}
			}
		}); a != 0 {
			t.Errorf("%s: %v allocations in 500 ticks", name, a)
		}
	}
	for _, plain := range []bool{false, true} {
		e := NewEncoder(EncoderOptions{Plain: plain})
		var b []byte
		f(fmt.Sprintf("encoder, plain %v", plain), func(s *metric.Snapshot) (err error) {
			b, err = e.Append(b[:0], s)
			return err
		})
	}
	w := NewWindow(64 << 10)
	f("window", w.Put)
	if w.Bytes() > 64<<10 {
		t.Errorf("the window takes %d bytes of %d", w.Bytes(), 64<<10)
	}
}

// appendSum completes a header's first 12 bytes.
func appendSum(b []byte) []byte {
	h := slices.Clone(b)
	sum := checksum(h)
	return append(h, byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
}

func FuzzDecoder(f *testing.F) {
	f.Add(encode(f, EncoderOptions{KeyEvery: 2}, newWorld(5).ticks(f, 3)))
	f.Add(encode(f, EncoderOptions{Plain: true}, newWorld(6).ticks(f, 2)))
	f.Add(sealed(f, encode(f, EncoderOptions{}, newWorld(5).ticks(f, 5)), 50))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := NewDecoder(bytes.NewReader(b))
		for {
			if _, err := d.Next(); err != nil {
				if err != io.EOF && !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrCorrupt) &&
					!errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrForeign) {
					t.Fatalf("error %v is none of the package's", err)
				}
				return
			}
		}
	})
}

// FuzzTick gives the decoders of a tick a body whose checksums are right.
func FuzzTick(f *testing.F) {
	f.Add([]byte{0, 5, 0, 0, 0, 2, 0}, false)
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0}, true)
	s := newWorld(7).tick(f)
	f.Fuzz(func(t *testing.T, body []byte, packed bool) {
		e := NewEncoder(EncoderOptions{Plain: true}) // starting zstd is slow
		b, err := e.Append(nil, s)
		if err != nil {
			t.Fatal(err)
		}
		b, at := beginRecord(b)
		tick := tickFront{chain: e.chain, n: 1, wall: s.Wall + 1, size: uint64(len(body)), zstd: packed}
		if packed {
			tick.size = 1 << 20
		}
		b = tick.append(b)
		start := len(b)
		b = append(b, body...)
		finishRecord(b, at, start, TypeTick, tick.flags())
		d := NewDecoder(bytes.NewReader(b))
		if _, err := d.Next(); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Next(); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatalf("error %v is not ErrCorrupt", err)
		}
	})
}
