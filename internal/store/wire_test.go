// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"testing"

	"rezolus/internal/metric"
)

func TestWindowGivesItsTicksBack(t *testing.T) {
	w := newWorld(7)
	window := NewWindow(8 << 20)
	all := w.ticks(t, 300)
	for _, s := range all {
		if err := window.Put(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, from := range []int{0, 1, 63, 64, 65, 200, 299} {
		want := all[from:]
		err := window.Each(all[from].Wall-1, func(s *metric.Snapshot) error {
			if len(want) == 0 {
				return errors.New("a tick too many")
			}
			err := equalTicks(s, want[0])
			want = want[1:]
			return err
		})
		if err != nil || len(want) > 0 {
			t.Errorf("from tick %d on: %v, %d ticks did not come", from, err, len(want))
		}
	}
	stop := errors.New("enough")
	if err := window.Each(0, func(*metric.Snapshot) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the error of the function: %v", err)
	}
	for _, after := range []int64{all[299].Wall, math.MaxInt64} {
		if err := window.Each(after, func(*metric.Snapshot) error { return stop }); err != nil {
			t.Errorf("after the last tick: %v", err)
		}
	}
}

// The evicted are gone, the others are whole.
func TestASmallWindowGivesWhatItHas(t *testing.T) {
	w := newWorld(8)
	window := NewWindow(64 << 10)
	all := w.ticks(t, 2000)
	for _, s := range all {
		if err := window.Put(s); err != nil {
			t.Fatal(err)
		}
	}
	held := int(window.Ticks())
	want := all[len(all)-held:]
	err := window.Each(0, func(s *metric.Snapshot) error {
		err := equalTicks(s, want[0])
		want = want[1:]
		return err
	})
	if err != nil || len(want) > 0 || held == len(all) {
		t.Errorf("of %d held: %v, %d did not come", held, err, len(want))
	}
}

func TestCompressedStream(t *testing.T) {
	plain := encode(t, EncoderOptions{Plain: true}, newWorld(3).ticks(t, 50))
	r, w := io.Pipe()
	go func() {
		c, err := NewCompressor(w)
		for i := 0; i < len(plain) && err == nil; i += 500 {
			_, err = c.Write(plain[i:min(i+500, len(plain))])
		}
		w.CloseWithError(errors.Join(err, c.Close(), io.EOF))
	}()
	d, err := NewDecompressor(r)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	got := make([]byte, len(plain))
	if _, err := io.ReadFull(d, got); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("%v, equal %v", err, bytes.Equal(got, plain))
	}
}

// What is written comes out at the other end without a further write.
func TestACompressedStreamHoldsNothingBack(t *testing.T) {
	r, w, err := os.Pipe() // has a buffer: a write does not wait for the read
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	c, err := NewCompressor(w)
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDecompressor(r)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, text := range []string{"one", "and another"} {
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(d, got); err != nil || string(got) != text {
			t.Fatalf("%q, %v", got, err)
		}
	}
}

func TestFrontsOfRecords(t *testing.T) {
	all := newWorld(5).ticks(t, 3)
	records := NewRecords(bytes.NewReader(encode(t, EncoderOptions{Interval: 1}, all)))
	n := 0
	for {
		rec, err := records.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch rec.Type {
		case TypeRun:
			if run, err := rec.Run(); err != nil || run != *all[0].Run {
				t.Errorf("%v, %v", run, err)
			}
		case TypeTick:
			s := all[n]
			if tick, err := rec.Tick(); err != nil || tick != (Tick{s.Seq, s.Wall, s.Interval, s.Missed}) {
				t.Errorf("%v, %v", tick, err)
			}
			n++
		}
	}
	if n != len(all) {
		t.Errorf("%d ticks", n)
	}
}
