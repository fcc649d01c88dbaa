// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"rezolus/internal/store"
)

// TestEventsAreInStreams: an event is behind a tick in every stream that is
// open, and who does not read holds up nobody.
func TestEventsAreInStreams(t *testing.T) {
	a, server, end := serve(t)
	defer end()
	if _, err := a.Subscribe("deaf", MaxInterval, 1); err != nil {
		t.Fatal(err)
	}
	var streams []*store.Decoder
	for range 2 {
		d := store.NewDecoder(follow(t, server, "?interval=2ms").Body)
		if _, err := d.Next(); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, d)
	}
	const events = 3 * maxEvents
	seen := make([]int, len(streams))
	for n := range events {
		a.Tell(store.Event{Time: int64(n), Text: "something happened"})
		for i, d := range streams {
			for seen[i] == n {
				if _, err := d.Next(); err != nil {
					t.Fatal(err)
				}
				for _, e := range d.Events() {
					if e.Time != int64(n) || e.Text != "something happened" {
						t.Errorf("stream %d: event %d is %+v", i, n, e)
					}
					seen[i]++
				}
			}
		}
	}
}
