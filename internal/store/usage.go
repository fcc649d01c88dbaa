// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// SourceUsage is what one source has of a recording.
type SourceUsage struct {
	Name   string
	Series int    // the most at once; of columns, the most of a segment
	Ticks  uint64 // that have a frame of it
	// Bytes are those of its values. Sources that are compressed together
	// share by the length of what was compressed. Times, dictionaries and
	// heads of records belong to no source.
	Bytes int64
}

// Usage says what each source has of the recording, the largest first. It
// reads all of it. What is damaged is left out.
func (r *Recording) Usage(ctx context.Context) ([]SourceUsage, error) {
	u := usage{}
	for _, l := range r.all() {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("read %s: %w", r.path, err)
		}
		take := u.rows
		if l.segment != nil {
			take = u.segment
		}
		if err := take(r, &l); err != nil && !damaged(err) {
			return nil, fmt.Errorf("read %s: %w", r.path, err)
		}
	}
	var out []SourceUsage
	for _, s := range u {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b SourceUsage) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

// usage is by the name of the source.
type usage map[string]*SourceUsage

func (u usage) of(name string) *SourceUsage {
	s := u[name]
	if s == nil {
		s = &SourceUsage{Name: name}
		u[name] = s
	}
	return s
}

// segment adds the columns of a segment.
func (u usage) segment(r *Recording, l *located) error {
	sr, err := newSegmentReader(r.segment(l))
	if err != nil {
		return err
	}
	defer sr.close()
	sources := make([]*SourceUsage, len(sr.d.sources))
	for i := range sr.d.sources {
		d, err := r.dict(sr.d.sources[i].dict)
		if err != nil {
			return err
		}
		s := u.of(d.Source)
		s.Series = max(s.Series, sr.d.sources[i].series)
		s.Ticks += uint64(sr.d.sources[i].frames)
		sources[i] = s
	}
	at := 0 // the source of a column
	for i := blockColumns; i < len(sr.d.blocks); i++ {
		k := &sr.d.blocks[i]
		if err := sr.open(i, k.columns); err != nil {
			return err
		}
		total, share := 0, map[*SourceUsage]int{}
		for j, c := range sr.columns {
			for at+1 < len(sources) && k.first+j >= sr.d.sources[at+1].column {
				at++
			}
			share[sources[at]] += len(c) + 1
			total += len(c) + 1
		}
		for s, n := range share {
			s.Bytes += k.bytes * int64(n) / int64(total)
		}
	}
	return nil
}

// rows adds the frames of ticks.
func (u usage) rows(r *Recording, l *located) error {
	p, find := pages{f: r.file, size: l.end}, r.find(l.chain)
	var unpack unpacker
	for at := l.off; at < l.end; {
		rec, n, err := p.record(at, true)
		if err != nil {
			return err
		}
		at += n
		if rec.Type != TypeTick {
			continue
		}
		t, err := parseTick(rec)
		if err != nil {
			return err
		}
		body, err := unpack.tick(&t, rec.body)
		if err != nil {
			return err
		}
		total := int64(len(body))
		for c := (cursor{b: body}); len(c.b) > 0; {
			f, err := nextFrame(&c, t.mono)
			if err != nil {
				return err
			}
			schema := find(f.number)
			if schema == nil {
				continue
			}
			s := u.of(schema.Source)
			s.Series = max(s.Series, len(schema.Series))
			s.Ticks++
			s.Bytes += int64(len(rec.body)) * int64(len(f.words)) / total
		}
	}
	return nil
}
