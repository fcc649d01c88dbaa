// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// linger is how long a stream waits for a follower that lost its connection.
const linger = 10 * time.Second

// stream is what a follower follows. It has one owner at a time: the request
// that serves it, or a goroutine that keeps it while there is none.
type stream struct {
	id      string
	sub     *Subscription
	encoder *store.Encoder
	headed  bool   // the encoder made its header
	buf     []byte // scratch: a tick
	batch   []byte // scratch: several
	base    uint64 // what is added to the mailbox's numbers
	number  uint64 // of the last tick of the mailbox; 0: none
	sent    sent
	asleep  Suspension

	kick  func()        // wakes an owner that writes
	taken bool          // somebody waits for it; under the lock of streams
	stop  chan struct{} // closed to ask the owner to leave it
	left  chan struct{} // closed when it has
}

// encode turns a snapshot into what is to be sent, and keeps it.
func (s *stream) encode(snapshot *metric.Snapshot) ([]byte, error) {
	snapshot.Seq += s.base
	seq := snapshot.Seq
	s.buf = s.buf[:0]
	if s.number != 0 && seq > s.number+1 {
		hole := int64(seq - s.number - 1)
		s.buf = s.encoder.AppendGap(s.buf, store.Gap{From: snapshot.Wall - hole*snapshot.Interval, To: snapshot.Wall - snapshot.Interval,
			Ticks: uint64(hole), Reason: "the follower did not keep up"})
	}
	s.number = seq
	if g, slept := s.asleep.Before(snapshot, s.sub.agent.slept); slept {
		s.buf = s.encoder.AppendGap(s.buf, g)
	}
	var err error
	s.buf, err = s.encoder.Append(s.buf, snapshot)
	s.sub.Release(snapshot)
	return s.keep(seq), err
}

// encodeAll encodes a snapshot and those that wait behind it.
func (s *stream) encodeAll(first *metric.Snapshot) ([]byte, error) {
	b, err := s.encode(first)
	if len(s.sub.C()) == 0 || err != nil {
		return b, err
	}
	s.batch = append(s.batch[:0], b...)
	for len(s.sub.C()) > 0 && len(s.batch) < halfBytes {
		if b, err = s.encode(<-s.sub.C()); err != nil {
			return nil, err
		}
		s.batch = append(s.batch, b...)
	}
	return s.batch, nil
}

// pause is how long a stream lets ticks gather, as Subscription.Each does, but
// for longer: whoever records does not look. Ten ticks take memory enough.
func pause(interval time.Duration) time.Duration {
	if interval >= 50*time.Millisecond {
		return 0
	}
	return min(100*time.Millisecond, 10*interval)
}

// rest waits for more ticks, if they come fast and there is none.
func (s *stream) rest(ctx context.Context) {
	d := pause(time.Duration(s.sub.interval))
	if d == 0 || len(s.sub.C()) > 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.stop:
	case <-ctx.Done():
	}
}

// keep keeps what was encoded, without the header, which every connection has
// of its own.
func (s *stream) keep(seq uint64) []byte {
	b := s.buf
	if !s.headed && len(b) > 0 {
		b, s.headed = b[len(store.Header()):], true
	}
	s.sent.add(seq, b)
	return b
}

// sent is what was sent last, as long as it fits.
type sent struct {
	old, new half
	before   uint64 // number of the last tick that is not in them
	begun    bool
}

// half is some of it: when one is full, the other one goes.
type half struct {
	data  []byte
	ticks []sentTick
}

type sentTick struct {
	seq uint64
	end int // in data
}

// halfBytes is the size of a half that is full.
const halfBytes = 256 << 10

func (l *sent) add(seq uint64, b []byte) {
	if !l.begun {
		l.begun, l.before = true, seq-1
	}
	if n := len(l.new.ticks); n > 0 && len(l.new.data)+len(b) > halfBytes {
		if m := len(l.old.ticks); m > 0 {
			l.before = l.old.ticks[m-1].seq
		}
		l.old, l.new = l.new, half{l.old.data[:0], l.old.ticks[:0]}
	}
	l.new.data = append(l.new.data, b...)
	l.new.ticks = append(l.new.ticks, sentTick{seq, len(l.new.data)})
}

// last is the number of the last tick that was kept.
func (l *sent) last() uint64 {
	if n := len(l.new.ticks); n > 0 {
		return l.new.ticks[n-1].seq
	}
	return l.before
}

// has reports whether all ticks after since are there.
func (l *sent) has(since uint64) bool { return l.before <= since && since <= l.last() }

// after are the bytes of the ticks after since.
func (l *sent) after(since uint64) (parts [2][]byte) {
	for i, h := range []*half{&l.old, &l.new} {
		from := 0
		for _, t := range h.ticks {
			if t.seq <= since {
				from = t.end
			}
		}
		parts[i] = h.data[from:]
	}
	return parts
}

// streams are those that have a name.
type streams struct {
	past func(interval time.Duration) Backfill // nil: there is none

	mu     sync.Mutex
	byName map[string]*stream
}

// hold lets the stream be taken by its name.
func (all *streams) hold(s *stream) {
	if s.id == "" {
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	s.taken = false
	if all.byName == nil {
		all.byName = map[string]*stream{}
	}
	all.byName[s.id] = s
}

// take takes the stream of a name from whoever has it; nil if there is none.
func (all *streams) take(id string) *stream {
	all.mu.Lock()
	s := all.byName[id]
	if s != nil {
		s.taken = true
		delete(all.byName, id)
	}
	all.mu.Unlock()
	if s == nil {
		return nil
	}
	close(s.stop)
	s.kick()
	<-s.left
	return s
}

// forget takes the stream off the list, and reports whether somebody took it.
func (all *streams) forget(s *stream) (taken bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.byName[s.id] == s {
		delete(all.byName, s.id)
	}
	return s.taken
}

// release ends the stream of its owner, unless somebody takes it just now.
func (a *Agent) release(s *stream) {
	if s.id != "" && a.streams.forget(s) {
		<-s.stop
		close(s.left)
		return
	}
	a.end(s)
}

// end ends a stream that nobody owns; nil is none.
func (a *Agent) end(s *stream) {
	if s != nil {
		s.sub.Close()
		a.stats.followers.Add(-1)
	}
}

// park keeps the stream for a while, if its follower can come back to it.
func (a *Agent) park(s *stream) {
	if s.id == "" {
		a.end(s)
		return
	}
	go func() {
		tired := time.NewTimer(linger)
		defer tired.Stop()
		for {
			select {
			case <-s.stop:
				close(s.left)
				return
			case <-tired.C:
				a.release(s)
				return
			case snapshot, open := <-s.sub.C():
				if open {
					if _, err := s.encode(snapshot); err == nil {
						continue
					}
				}
				a.release(s)
				return
			}
		}
	}()
}
