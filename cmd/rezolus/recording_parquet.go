// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"rezolus/internal/export/parquet"
	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// foreign is a Parquet file of ticks. Of its columns those are read that are
// asked for.
type foreign struct {
	*parquet.File
	file    *os.File
	info    store.Info
	cells   atomic.Uint64 // histograms that were left out so far
	dropped []string      // keys of metadata that a recording cannot hold
	whole   *store.Recording
}

func openParquet(path string) (*opened, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	in := &foreign{file: file}
	if in.File, in.info.Bytes, err = parquetFile(file, path); err == nil && in.Rows() == 0 {
		err = fmt.Errorf("read %s: it has no ticks", path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	i := &in.info
	i.Ticks, i.Closed, i.Interval = uint64(in.Rows()), true, time.Duration(in.Interval())
	i.First, i.Last = in.Bounds()
	runs := in.Runs()
	meta := in.keep(runs[0].Host)
	for _, r := range runs {
		i.Runs = append(i.Runs, store.RunInfo{Run: r, Meta: meta, Interval: i.Interval})
	}
	for _, e := range in.Events() {
		i.Events = append(i.Events, store.Event(e))
	}
	for _, g := range in.Gaps() {
		i.Gaps = append(i.Gaps, store.Gap(g))
	}
	return &opened{readable: in, path: path, foreign: in}, nil
}

// parquetFile opens the file of a path.
func parquetFile(f *os.File, path string) (*parquet.File, int64, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	file, err := parquet.Open(f, info.Size())
	if err != nil {
		return nil, 0, parquetAdvice(path, err)
	}
	return file, info.Size(), nil
}

// parquetAdvice says what to do about a file that cannot be read.
func parquetAdvice(path string, err error) error {
	named := fmt.Errorf("read %s: %w", path, err)
	switch {
	case errors.Is(err, parquet.ErrUnsupported):
		return hint(named, "install a newer rezolus; this is %s", version)
	case errors.Is(err, parquet.ErrDamaged):
		return hint(named, "a Parquet file cannot be repaired: all of it hangs on its end; record to .rzr, and convert")
	}
	return named
}

// Info implements readable. How many series lived at once and how many ticks
// were missed is known of the whole alone.
func (f *foreign) Info() store.Info { return f.info }

// Refresh implements readable: a Parquet file does not grow.
func (f *foreign) Refresh() error { return nil }

// Close closes the file.
func (f *foreign) Close() error {
	if f.whole != nil {
		return errors.Join(f.whole.Close(), f.file.Close())
	}
	return f.file.Close()
}

// Each implements readable.
func (f *foreign) Each(ctx context.Context, from, to int64, take func(*metric.Snapshot) error) error {
	return f.each(ctx, from, to, nil, take)
}

// each is Each with only the series that are wanted; nil wants all.
func (f *foreign) each(ctx context.Context, from, to int64, want func(*metric.Series) bool, take func(*metric.Snapshot) error) error {
	r := f.Ticks(from, to, want)
	for {
		s, err := r.Next()
		if errors.Is(err, io.EOF) {
			f.cells.Store(r.Report().Cells)
			return nil
		}
		if err != nil {
			return parquetAdvice(f.file.Name(), err)
		}
		if err := take(s); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read %s: %w", f.file.Name(), err)
		}
	}
}

// recording is the file as a recording. Of Parquet one is made for that, on
// the disk and without a name: it is gone when it is closed, however this
// process ends.
func (o *opened) recording(ctx context.Context) (_ *store.Recording, err error) {
	f := o.foreign
	switch {
	case f == nil:
		return o.readable.(*store.Recording), nil
	case f.whole != nil:
		return f.whole, nil
	}
	dir, err := os.MkdirTemp("", "rezolus-")
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", o.path, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "import.rzr")
	r := &rewriting{extract: whole(o)}
	if _, err := r.run(ctx, path); errors.Is(err, syscall.ENOSPC) {
		return nil, hint(err, "reading Parquet takes room in %s; set TMPDIR to a place with more", os.TempDir())
	} else if err != nil {
		return nil, err
	}
	f.whole, err = store.Open(osFS, path)
	return f.whole, err
}

// What a recording can hold of metadata; its run record has 64 KiB in all.
const (
	maxMetaValue = 16 << 10
	maxMeta      = 48 << 10
)

// derived are the keys of a Parquet file that say what its ticks say as well.
var derived = []string{"version", "sampling_interval_ms", "descriptions", "per_source_metadata", "events"}

// keep is the metadata that goes into a recording.
func (f *foreign) keep(host string) map[string]string {
	out, total := map[string]string{}, 0
	meta := f.Metadata()
	for _, k := range slices.Sorted(maps.Keys(meta)) {
		v := meta[k]
		if slices.Contains(derived, k) || k == "node" && v == host {
			continue
		}
		if len(v) > maxMetaValue || total+len(k)+len(v) > maxMeta {
			f.dropped = append(f.dropped, k)
			continue
		}
		total += len(k) + len(v)
		out[k] = v
	}
	return out
}

// warn says what of a Parquet file is not here.
func (o *opened) warn(w io.Writer) {
	if o.foreign == nil {
		return
	}
	if skipped := o.foreign.Report().Skipped; len(skipped) > 0 {
		n, first := len(skipped), skipped[0]
		fmt.Fprintf(w, "rezolus: warning: %s: %d columns are not read, such as %q: %s\n", o.path, n, first.Column, first.Reason)
	}
	if len(o.foreign.dropped) > 0 {
		fmt.Fprintf(w, "rezolus: warning: %s: metadata too long for a recording: %s\n", o.path, strings.Join(o.foreign.dropped, ", "))
	}
}
