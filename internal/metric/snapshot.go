// SPDX-License-Identifier: Apache-2.0

package metric

// Frame is one read of one source.
type Frame struct {
	Schema *Schema
	// Begin and End bound the read in nanoseconds of CLOCK_MONOTONIC: every
	// value was taken between the two (the acquisition window).
	Begin, End int64
	// Values has Schema.Words words: counters, gauges and buckets, back to
	// back in the order of the schema.
	Values []uint64
	// Stamps, one for each Block words, spare whoever has the frame before a
	// look at every word: in frames of one schema (the pointer), blocks of
	// equal stamps have equal words. A stamp of 0 says nothing, and a source
	// that does not know what changed has none. Who writes to Values clears
	// them.
	Stamps []uint64
	// Lost is the number of events the source knows it could not attribute
	// since it started.
	Lost uint64
}

// Block is how many words one stamp is for.
const Block = 64

// Blocks is how many stamps are for n words.
func Blocks(n int) int { return (n + Block - 1) / Block }

// Resize gives Values exactly n words, keeping the memory it has. The words
// are not cleared.
func (f *Frame) Resize(n int) {
	if cap(f.Values) < n {
		f.Values = make([]uint64, n)
	}
	f.Values = f.Values[:n]
}

// CopyFrom makes f a copy of g that shares only the schema. What the stamps
// show that f has already is not copied.
func (f *Frame) CopyFrom(g *Frame) {
	if f.Schema == g.Schema && len(f.Stamps) > 0 && len(f.Stamps) == len(g.Stamps) {
		for i, stamp := range g.Stamps {
			if stamp != f.Stamps[i] || stamp == 0 {
				end := min((i+1)*Block, len(g.Values))
				copy(f.Values[i*Block:end], g.Values[i*Block:end])
				f.Stamps[i] = stamp
			}
		}
	} else {
		f.Resize(len(g.Values))
		copy(f.Values, g.Values)
		f.Stamps = append(f.Stamps[:0], g.Stamps...)
	}
	f.Schema, f.Begin, f.End, f.Lost = g.Schema, g.Begin, g.End, g.Lost
}

// Run is one life of one agent. Sequence numbers count within a run.
type Run struct {
	ID      [16]byte // random, new at every start of the agent
	Boot    [16]byte // /proc/sys/kernel/random/boot_id
	Started int64    // Unix nanoseconds
	Host    string   // host name
	Kernel  string   // uname -r
	Arch    string   // GOARCH: amd64 or arm64
	Version string   // of the agent
}

// Snapshot is one tick: what every source gave at one moment. A source that
// failed or was not due has no frame in it; absence is never zero.
type Snapshot struct {
	Run *Run
	// Seq numbers the ticks a consumer was due, from 1 in each run; a gap
	// in it is a tick that was lost on the way.
	Seq uint64
	// Wall and Mono are the tick's scheduled moment in Unix nanoseconds and
	// in nanoseconds of CLOCK_MONOTONIC.
	Wall, Mono int64
	// Interval is the time to the tick before, as it was asked for, in
	// nanoseconds.
	Interval int64
	// Missed is how many ticks the agent itself skipped since the one
	// before, because it was late.
	Missed uint64
	Frames []Frame
}

// CopyFrom makes s a copy of o that shares only run and schemas, in the
// memory s has.
func (s *Snapshot) CopyFrom(o *Snapshot) {
	frames := s.Grow(len(o.Frames))
	*s = *o
	s.Frames = frames
	for i := range frames {
		frames[i].CopyFrom(&o.Frames[i])
	}
}

// Grow sets the number of frames to n, keeping the memory of frames that
// are there or were there before, and returns them.
func (s *Snapshot) Grow(n int) []Frame {
	if cap(s.Frames) < n {
		s.Frames = append(s.Frames[:cap(s.Frames)], make([]Frame, n-cap(s.Frames))...)
	}
	s.Frames = s.Frames[:n]
	return s.Frames
}
