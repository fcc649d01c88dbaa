// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"slices"
)

// changeLog keeps what changed in a segment, as three to four bytes a change:
// how much a segment holds is how well it is coded, and memory is what bounds
// it. It has many tracks, each in the order in which it was written: a
// collector's are of lives, a rowReader's of rows. Their chunks lie between
// each other, so that none has to grow, and are used again for the next
// segment.
type changeLog struct {
	pages [][]byte
	used  uint32 // chunks
	bytes int    // of all changes
}

const (
	chunkBytes = 128 // of which the first four are the number of the next chunk
	chunkNext  = 4
	chunkPage  = 512 // chunks that are allocated at once
)

// track is where the changes of a life or of a row are.
type track struct {
	first, last uint32 // chunks
	used        uint8  // bytes of the last one; 0: there are none
	at          uint32 // of the last change: the frame, or of a row's the word
	n           int    // changes
}

func (l *changeLog) reset() { l.used, l.bytes = 0, 0 }

func (l *changeLog) chunk(i uint32) []byte {
	return l.pages[i/chunkPage][i%chunkPage*chunkBytes:][:chunkBytes]
}

// more is a chunk that was not in use.
func (l *changeLog) more() uint32 {
	if int(l.used) == len(l.pages)*chunkPage {
		l.pages = append(l.pages, make([]byte, chunkPage*chunkBytes))
	}
	l.used++
	return l.used - 1
}

// add adds a change: of so many words one, by d. Where there is but one word,
// it is not kept which.
func (l *changeLog) add(t *track, at, word, words int, d uint64) {
	var buf [3 * binary.MaxVarintLen64]byte
	b := binary.AppendVarint(buf[:0], int64(at)-int64(t.at))
	if words > 1 {
		b = binary.AppendUvarint(b, uint64(word))
	}
	b = binary.AppendUvarint(b, zigzag(d))
	t.at = uint32(at)
	t.n++
	l.bytes += len(b)
	if t.used == 0 {
		t.first = l.more()
		t.last, t.used = t.first, chunkNext
	}
	for {
		n := copy(l.chunk(t.last)[t.used:], b)
		t.used += uint8(n)
		if b = b[n:]; len(b) == 0 {
			return
		}
		next := l.more()
		binary.LittleEndian.PutUint32(l.chunk(t.last), next)
		t.last, t.used = next, chunkNext
	}
}

// read brings the bytes of a track together, in buf.
func (l *changeLog) read(t *track, buf []byte) []byte {
	buf = buf[:0]
	if t.used == 0 {
		return buf
	}
	at := t.first
	for ; at != t.last; at = binary.LittleEndian.Uint32(l.chunk(at)) {
		buf = append(buf, l.chunk(at)[chunkNext:]...)
	}
	return append(buf, l.chunk(at)[chunkNext:t.used]...)
}

// gathered are the changes of a life in the order of its words.
type gathered struct {
	buf    []byte
	starts []uint32 // where those of each word begin
	at     []uint16
	by     []uint64
}

// gather sorts the changes of a life of so many words. Their places count
// from the frame that holds its second value.
func (g *gathered) gather(l *changeLog, t *track, words, second int) {
	g.buf = l.read(t, g.buf)
	g.starts = resized(g.starts, words+1)
	clear(g.starts)
	g.at, g.by = resized(g.at, t.n), resized(g.by, t.n)
	eachChange(g.buf, words, func(_, word int, _ uint64) { g.starts[word+1]++ })
	for i := range words {
		g.starts[i+1] += g.starts[i]
	}
	eachChange(g.buf, words, func(at, word int, d uint64) {
		i := g.starts[word]
		g.at[i], g.by[i] = uint16(at-second), d
		g.starts[word]++
	})
	copy(g.starts[1:], g.starts[:words]) // each has moved to where the next began
	g.starts[0] = 0
}

// eachChange calls f for every change of a track that was read.
func eachChange(b []byte, words int, f func(at, word int, d uint64)) {
	at, word := 0, 0
	for c := (cursor{b: b}); len(c.b) > 0; {
		at += int(c.varint())
		if words > 1 {
			word = int(c.uvarint())
		}
		f(at, word, unzigzag(c.uvarint()))
	}
}

// of are the steps of a word that has n values.
func (g *gathered) of(word, n int) steps {
	lo, hi := g.starts[word], g.starts[word+1]
	return steps{n: n - 1, at: g.at[lo:hi], by: g.by[lo:hi]}
}

func resized[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }
