// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// TestASuspensionIsInTheStream: who follows is told that the machine slept, and
// not that it did where the clock was set.
func TestASuspensionIsInTheStream(t *testing.T) {
	asleep := 5 * time.Second // before there was a stream
	a := New(Options{Run: &metric.Run{}, Clock: newBubble()})
	a.slept = func() time.Duration { return asleep }
	s := &stream{sub: &Subscription{agent: a}, encoder: store.NewEncoder(store.EncoderOptions{})}
	tick := metric.Snapshot{Run: a.run, Interval: int64(time.Second), Wall: 1_700_000_000e9, Mono: 1e9}
	b := store.Header()
	put := func(wall time.Duration) {
		t.Helper()
		tick.Seq++
		tick.Wall, tick.Mono = tick.Wall+int64(wall), tick.Mono+int64(time.Second)
		one := tick
		got, err := s.encode(&one)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, got...)
	}
	put(time.Second)
	put(time.Hour) // the clock was set
	asleep += 60 * time.Second
	put(time.Second) // of before
	put(61 * time.Second)
	put(time.Second)
	put(-time.Hour)
	asleep += 500 * time.Millisecond
	put(1500 * time.Millisecond) // no tick is missing
	var got []string
	for d := store.NewDecoder(bytes.NewReader(b)); ; {
		snap, err := d.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range d.Gaps() {
			got = append(got, fmt.Sprint(snap.Seq, " ", g.Reason, " ", g.Ticks, " ", snap.Wall-g.To))
		}
	}
	if want := []string{"4 the machine was suspended 60 1000000000"}; !slices.Equal(got, want) {
		t.Errorf("gaps %q, want %q", got, want)
	}
}

// TestASuspensionLeavesOutWhatTheLoopMissed: the tick behind it says so itself.
func TestASuspensionLeavesOutWhatTheLoopMissed(t *testing.T) {
	asleep := time.Duration(0)
	slept := func() time.Duration { return asleep }
	var p Suspension
	p.Before(&metric.Snapshot{Wall: 100e9, Mono: 1e9, Interval: 1e9}, slept)
	asleep = 60 * time.Second
	g, ok := p.Before(&metric.Snapshot{Wall: 163e9, Mono: 4e9, Interval: 1e9, Missed: 2}, slept)
	if want := (store.Gap{From: 101e9, To: 160e9, Ticks: 60, Reason: store.Suspended}); !ok || g != want {
		t.Errorf("gap %+v, want %+v", g, want)
	}
}
