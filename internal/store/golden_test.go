// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rezolus/internal/vfs"
)

var golden = flag.Bool("golden", false, "write the golden and the damaged files of this version")

// say is all that a recording has, as text.
func say(t testing.TB, r *Recording) string {
	t.Helper()
	var b strings.Builder
	info := r.Info()
	for _, run := range info.Runs {
		fmt.Fprintf(&b, "run %x of boot %x on %s %s %s, version %s, started %d, asked for %v, metadata %v\n", run.Run.ID[:4], run.Run.Boot[:4],
			run.Run.Host, run.Run.Kernel, run.Run.Arch, run.Run.Version, run.Run.Started, run.Interval, run.Meta)
	}
	fmt.Fprintf(&b, "%d ticks, %d missed, %d to %d, interval %v, closed %v, damage %v\n", info.Ticks, info.Missed, info.First, info.Last,
		info.Interval, info.Closed, info.Damage)
	for _, g := range info.Gaps {
		fmt.Fprintf(&b, "gap %+v\n", g)
	}
	for _, e := range info.Events {
		fmt.Fprintf(&b, "event %+v\n", e)
	}
	for _, c := range selected(t, r, math.MinInt64, math.MaxInt64, everything) {
		fmt.Fprintf(&b, "%q, gone at %d\n", c.id, c.gone)
		for _, s := range c.samples {
			fmt.Fprintf(&b, "  %d %d", s.time, s.start)
			for i, w := range s.words {
				if w != 0 {
					fmt.Fprintf(&b, " %d:%d", i, w)
				}
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// TestGolden reads files that this version's first release wrote, and finds
// in them what it found then. They are never written again.
func TestGolden(t *testing.T) {
	if *golden {
		writeGolden(t)
	}
	want, err := os.ReadFile(filepath.Join("testdata", "golden-v1.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"golden-v1-rows.rzr", "golden-v1-columns.rzr", "golden-v1-tree.rzr"} {
		path := filepath.Join("testdata", name)
		if got := say(t, openIn(t, vfs.OS, path)); got != string(want) {
			t.Errorf("%s holds\n%s\nwant\n%s", name, got, want)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		ticks := 0
		for d := NewDecoder(bytes.NewReader(b)); ; ticks++ {
			if _, err := d.Next(); err != nil {
				break
			}
		}
		if ticks != 46 {
			t.Errorf("%s streams %d ticks, want 46", name, ticks)
		}
	}
}

// writeGolden makes recordings with everything in them: two runs, series that
// come and go, gaps, events, a clock that is set ahead. The file in columns has
// histograms coded as they were before there were trees; no writer makes it.
func writeGolden(t *testing.T) {
	w := newWorld(1)
	path := filepath.Join("testdata", "golden-v1-rows.rzr")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	wr, err := Create(vfs.OS, path, WriterOptions{Rows: true, EncoderOptions: EncoderOptions{KeyEvery: 8, Meta: map[string]string{"note": "golden"}, Interval: 1e9}})
	must(err)
	for i := range 46 {
		switch i {
		case 10:
			must(wr.WriteGap(Gap{From: w.wall + second, To: w.wall + 3*second, Ticks: 3, Reason: "the disk was full"}))
			w.wall += 3 * second
		case 20:
			must(wr.WriteEvent(Event{Time: w.wall, Text: "deployed"}))
		case 25:
			w.restart()
			w.wall += 60 * second
		case 33:
			w.wall += 3600 * second
		}
		must(wr.Put(w.tick(t)))
	}
	must(wr.Close())
	r := openIn(t, vfs.OS, path)
	_, err = Copy(context.Background(), vfs.OS, filepath.Join("testdata", "golden-v1-tree.rzr"), CopyOptions{}, r)
	must(err)
	must(os.WriteFile(filepath.Join("testdata", "golden-v1.txt"), []byte(say(t, r)), 0o644))
}

// damages are what happened to files: from a recording in rows and one in
// columns, what is left of it.
var damages = []struct {
	name string
	make func(rows, columns []byte) []byte
}{
	{"empty", func(_, _ []byte) []byte { return nil }},
	{"half-a-header", func(rows, _ []byte) []byte { return rows[:9] }},
	{"header-only", func(rows, _ []byte) []byte { return rows[:headerSize] }},
	{"bad-header", func(rows, _ []byte) []byte { return flipped(rows, 13) }},
	{"torn-tick", func(rows, _ []byte) []byte { return rows[:len(rows)*2/3+5] }},
	{"no-end", func(rows, _ []byte) []byte { return rows[:len(rows)-endSize] }},
	{"zero-sector", func(rows, _ []byte) []byte { return zeroed(rows, len(rows)/2&^511, 512) }},
	{"zero-tail", func(rows, _ []byte) []byte { return append(slices.Clone(rows[:len(rows)*3/4]), make([]byte, 4096)...) }},
	{"flipped-tick", func(rows, _ []byte) []byte { return flipped(rows, len(rows)/3) }},
	{"flipped-run", func(rows, _ []byte) []byte { return flipped(rows, len(rows)/2) }},
	{"no-run", func(rows, _ []byte) []byte { return zeroed(rows, headerSize, 40) }},
	{"twice", func(rows, _ []byte) []byte { return append(slices.Clone(rows), rows[headerSize:]...) }},
	{"text-in-the-middle", func(rows, _ []byte) []byte {
		return slices.Insert(slices.Clone(rows), len(rows)/2, []byte("\nSegmentation fault\n")...)
	}},
	{"columns-torn", func(_, columns []byte) []byte { return columns[:len(columns)/2] }},
	{"columns-flipped", func(_, columns []byte) []byte { return flipped(columns, len(columns)*3/4) }},
	{"columns-zero-sector", func(_, columns []byte) []byte { return zeroed(columns, len(columns)/2&^511, 512) }},
	{"columns-without-dictionary", func(_, columns []byte) []byte { return cut(columns, TypeDict) }},
	{"columns-without-a-block", func(_, columns []byte) []byte { return cut(columns, TypeBlock) }},
	{"newer-version", func(rows, _ []byte) []byte {
		b := slices.Clone(rows)
		b[8] = 9
		binary.LittleEndian.PutUint32(b[12:], checksum(b[:12]))
		return b
	}},
	{"newer-record", func(rows, _ []byte) []byte {
		return frontRecord(slices.Clone(rows), 99, 0, func(b []byte) []byte { return b })
	}},
	{"parquet", func(_, _ []byte) []byte { return []byte("PAR1\x15\x04\x15\x10PAR1") }},
}

func flipped(b []byte, at int) []byte {
	b = slices.Clone(b)
	b[at] ^= 0x10
	return b
}

func zeroed(b []byte, at, n int) []byte {
	b = slices.Clone(b)
	clear(b[at:min(at+n, len(b))])
	return b
}

// cut takes the first record of a type out.
func cut(b []byte, typ Type) []byte {
	for at := headerSize; at < len(b); {
		rec, err := parseRecord(b[at:])
		if err != nil {
			return b
		}
		if rec.Type == typ {
			return slices.Delete(slices.Clone(b), at, at+len(rec.Raw))
		}
		at += len(rec.Raw)
	}
	return b
}

// TestDamagedFiles reads a collection of damaged files. What was found in
// each is in a text beside it.
func TestDamagedFiles(t *testing.T) {
	dir := filepath.Join("testdata", "damaged")
	whole := say(t, openIn(t, vfs.OS, filepath.Join("testdata", "golden-v1-rows.rzr")))
	for _, d := range damages {
		path := filepath.Join(dir, d.name)
		if *golden {
			rows, err := os.ReadFile(filepath.Join("testdata", "golden-v1-rows.rzr"))
			if err != nil {
				t.Fatal(err)
			}
			columns, err := os.ReadFile(filepath.Join("testdata", "golden-v1-columns.rzr"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path+".rzr", d.make(rows, columns), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got := found(t, path+".rzr", whole)
		if *golden {
			if err := os.WriteFile(path+".txt", []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: found\n%s\nwant\n%s", d.name, got, want)
		}
	}
}

// found says what can be read of a damaged file, and checks that nothing is
// that was not written.
func found(t *testing.T, path, whole string) string {
	r, err := Open(vfs.OS, path)
	if err != nil {
		if !errors.Is(err, ErrForeign) && !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", path, err)
		}
		_, after, _ := strings.Cut(err.Error(), ": ")
		return after + "\n"
	}
	defer r.Close()
	samples := 0
	for _, line := range strings.Split(say(t, r), "\n") {
		if strings.HasPrefix(line, "  ") {
			if samples++; !strings.Contains(whole, line+"\n") {
				t.Errorf("%s: has %q, which was never written", path, line)
			}
		}
	}
	info := r.Info()
	var b strings.Builder
	fmt.Fprintf(&b, "%d ticks, %d samples, closed %v\n", info.Ticks, samples, info.Closed)
	for _, d := range info.Damage {
		fmt.Fprintf(&b, "byte %d, %d bytes: %v\n", d.Offset, d.Bytes, d.Err)
	}
	return b.String()
}
