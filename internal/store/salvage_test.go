// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"rezolus/internal/metric"
	"rezolus/internal/vfs"
)

// wordsOf are the words of a tick, by series.
func wordsOf(s *metric.Snapshot) map[string][]uint64 {
	out := map[string][]uint64{}
	for i := range s.Frames {
		f := &s.Frames[i]
		for j := range f.Schema.Series {
			e := &f.Schema.Series[j]
			out[f.Schema.Source+identity(e)+fmt.Sprint(e.Start)] = slices.Clone(f.Values[e.Off:][:e.Desc.Words()])
		}
	}
	return out
}

// TestADamagedColumnTakesNoOtherWithIt flips every byte of a sealed recording.
// Where ticks are left, what is in them is right; and a block of columns that
// is damaged leaves all ticks, and the other blocks' columns in them.
func TestADamagedColumnTakesNoOtherWithIt(t *testing.T) {
	all := newWorld(32).ticks(t, 8)
	b := sealed(t, encode(t, EncoderOptions{}, all), 60)
	truth := map[int64]map[string][]uint64{}
	for _, s := range all {
		truth[s.Wall] = wordsOf(s)
	}
	kept := 0
	for n := headerSize; n < len(b); n++ {
		bad := slices.Clone(b)
		bad[n] ^= 1 << (n % 8)
		r := open(t, bad)
		ticks, series := checkAgainst(t, r, truth)
		if len(r.Info().Damage) == 0 || ticks < len(all) || series == 0 {
			continue
		}
		kept++
		m := vfs.NewMem()
		if _, err := Copy(context.Background(), m, "x", CopyOptions{}, r); err != nil {
			t.Fatal(err)
		}
		if again, more := checkAgainst(t, openIn(t, m, "x"), truth); again != ticks || more != series {
			t.Fatalf("byte %d: a copy has %d ticks and %d words' series, not %d and %d", n, again, more, ticks, series)
		}
	}
	if kept == 0 {
		t.Error("no damage leaves all ticks")
	}
}

// checkAgainst counts ticks and the series in them, all of which must be true.
func checkAgainst(t *testing.T, r *Recording, truth map[int64]map[string][]uint64) (ticks, series int) {
	t.Helper()
	err := r.Each(context.Background(), math.MinInt64, math.MaxInt64, func(s *metric.Snapshot) error {
		ticks++
		for id, words := range wordsOf(s) {
			series++
			if !slices.Equal(words, truth[s.Wall][id]) {
				return fmt.Errorf("%q has %v at %d, which was never written", id, words, s.Wall)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ticks, series
}

func TestUsageSaysWhoTakesTheBytes(t *testing.T) {
	all := newWorld(7).ticks(t, 40)
	rows := encode(t, EncoderOptions{}, all)
	frames := map[string]uint64{}
	for _, s := range all {
		for i := range s.Frames {
			frames[s.Frames[i].Schema.Source]++
		}
	}
	for form, b := range map[string][]byte{"rows": rows, "columns": sealed(t, rows, 60)} {
		used, err := open(t, b).Usage(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		got, total := map[string]uint64{}, int64(0)
		for _, u := range used {
			got[u.Name] = u.Ticks
			total += u.Bytes
		}
		if fmt.Sprint(got) != fmt.Sprint(frames) {
			t.Errorf("%s: frames by source %v, want %v", form, got, frames)
		}
		if total <= 0 || total > int64(len(b)) {
			t.Errorf("%s: the sources take %d of %d bytes", form, total, len(b))
		}
	}
}
