// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"bytes"
	"errors"

	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// shelf keeps the ticks of an endpoint that wait for others, in the bytes of a
// recording: of an agent with all its samplers that is 2 kB a tick, where a
// snapshot takes 300. They are taken in the order in which they were put.
type shelf struct {
	encoder *store.Encoder
	decoder *store.Decoder
	waiting bytes.Buffer
	scratch []byte
	last    int64 // wall of the last one
	seq     uint64
	broken  bool
}

func newShelf(o Options) *shelf {
	s := &shelf{encoder: store.NewEncoder(store.EncoderOptions{Interval: o.Interval})}
	s.decoder = store.NewDecoder(&s.waiting)
	return s
}

// put keeps a tick, and reports whether it could: not one that is no later than
// the last.
func (s *shelf) put(tick *metric.Snapshot) bool {
	if tick.Wall <= s.last || s.broken {
		return false
	}
	tick.Seq = s.seq + 1
	var err error
	if s.scratch, err = s.encoder.Append(s.scratch[:0], tick); err != nil {
		return false
	}
	s.seq, s.last = tick.Seq, tick.Wall
	s.waiting.Write(s.scratch) // never fails
	return true
}

// words is the memory of what waits.
func (s *shelf) words() int { return s.waiting.Len() / 8 }

// take is the next tick, which may be read until the next is taken.
func (s *shelf) take(wall int64) (*metric.Snapshot, error) {
	tick, err := s.decoder.Next()
	if err == nil && tick.Wall != wall {
		err = errors.New("another tick than was put aside")
	}
	s.broken = s.broken || err != nil
	if s.waiting.Len() == 0 && s.waiting.Cap() > 1<<20 {
		s.waiting = bytes.Buffer{} // what only a long wait needed
	}
	return tick, err
}
