// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"rezolus/internal/metric"
)

// Each calls f for every tick within [from, to], Unix nanoseconds, both
// inclusive, in the order in which they were recorded; where the clock was
// set back that is not the order of time. A snapshot may be read until f
// returns. What is damaged is left out and appears in Info. Memory is that of
// one segment, however long the recording.
func (r *Recording) Each(ctx context.Context, from, to int64, f func(*metric.Snapshot) error) error {
	within := func(s *metric.Snapshot) error {
		if s.Wall < from || s.Wall > to {
			return nil
		}
		return f(s)
	}
	for _, l := range r.all() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read %s: %w", r.path, err)
		}
		if max(l.first, from) > min(l.last, to) {
			continue
		}
		next, _, err := r.ticks(&l, from, to)
		for err == nil {
			var s *metric.Snapshot
			if s, err = next(); s == nil || err != nil {
				break
			}
			if err := within(s); err != nil {
				return err
			}
		}
		if damaged(err) {
			r.hurt(l.off, l.end-l.off, err)
		} else if err != nil {
			return fmt.Errorf("read %s: %w", r.path, err)
		}
	}
	return nil
}

// ticks gives the ticks of a stretch, one after the other and then nil: those
// of columns within [from, to], of which it passed over some before, and all
// that are rows.
func (r *Recording) ticks(l *located, from, to int64) (next func() (*metric.Snapshot, error), before uint64, err error) {
	if l.segment != nil {
		rows, err := r.segment(l).rows(&l.chain.run, from, to)
		if err != nil {
			return nil, 0, err
		}
		return rows.next, uint64(rows.row), nil
	}
	// The stretch as a stream of its own: it begins with a key tick.
	b := frontRecord(appendHeader(nil), TypeRun, 0, l.chain.append)
	p := pages{f: r.file, size: l.end}
	for _, at := range l.chain.schemas {
		if at.from < l.off && at.until > l.off {
			if rec, _, err := p.record(at.from, true); err == nil {
				b = append(b, rec.Raw...)
			}
		}
	}
	var bad error
	for at := l.off; at < l.end; {
		rec, n, err := p.record(at, true)
		if err != nil {
			bad = err
			break
		}
		b = append(b, rec.Raw...)
		at += n
	}
	d := NewDecoder(bytes.NewReader(b))
	return func() (*metric.Snapshot, error) {
		s, err := d.Next()
		if err == io.EOF {
			return nil, bad
		}
		return s, err
	}, 0, nil
}
