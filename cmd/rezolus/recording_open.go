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
	"syscall"
	"time"

	"rezolus/internal/export/parquet"
	"rezolus/internal/store"
)

// opened is a file of ticks that can be read and asked, of whatever form.
type opened struct {
	*store.Recording
	path    string
	foreign *foreign // nil: it is a recording
}

// foreign is what a Parquet file has besides its ticks.
type foreign struct {
	bytes   int64
	meta    map[string]string
	report  parquet.Report
	dropped []string // keys of metadata that a recording cannot hold
}

// openRecording opens a recording or a Parquet file, whatever its name, with
// advice where it is neither.
func openRecording(ctx context.Context, path string) (*opened, error) {
	if isParquet(path) {
		return importParquet(ctx, path)
	}
	r, err := store.Open(osFS, path)
	switch {
	case errors.Is(err, store.ErrUnsupported):
		return nil, hint(err, "install a newer rezolus; this is %s", version)
	case errors.Is(err, store.ErrForeign) && strings.HasSuffix(path, ".rez"):
		return nil, hint(err, "the Rust implementation's .rez is not read; have it recorded as Parquet")
	case errors.Is(err, store.ErrForeign):
		return nil, hint(err, "recordings (.rzr) and Parquet files of metrics (.parquet) are read")
	case errors.Is(err, syscall.EISDIR):
		return nil, hint(err, "name one of the files within it")
	case err != nil:
		return nil, err
	}
	return &opened{Recording: r, path: path}, nil
}

// isParquet looks at the first bytes: names lie.
func isParquet(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [4]byte
	_, err = io.ReadFull(f, magic[:])
	return err == nil && string(magic[:]) == "PAR1"
}

// importParquet makes a recording of a Parquet file, on the disk and without
// a name: it is gone when it is closed, however this process ends.
func importParquet(ctx context.Context, path string) (out *opened, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	reader, size, err := parquetReader(f, path)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "rezolus-")
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	copied := filepath.Join(dir, "import.rzr")
	out = &opened{path: path, foreign: &foreign{bytes: size, meta: reader.Metadata()}}
	if err := out.foreign.copyTo(ctx, reader, copied); err != nil {
		return nil, parquetAdvice(path, err)
	}
	out.foreign.report = reader.Report()
	out.Recording, err = store.Open(osFS, copied)
	return out, err
}

// parquetReader opens the file of a path.
func parquetReader(f *os.File, path string) (*parquet.Reader, int64, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	reader, err := parquet.Open(f, info.Size())
	if err != nil {
		return nil, 0, parquetAdvice(path, err)
	}
	return reader, info.Size(), nil
}

// parquetAdvice says what to do about a file that cannot be read.
func parquetAdvice(path string, err error) error {
	named := fmt.Errorf("read %s: %w", path, err)
	switch {
	case errors.Is(err, parquet.ErrUnsupported):
		return hint(named, "install a newer rezolus; this is %s", version)
	case errors.Is(err, parquet.ErrDamaged):
		return hint(named, "a Parquet file cannot be repaired: all of it hangs on its end; record to .rzr, and convert")
	case errors.Is(err, syscall.ENOSPC):
		return hint(named, "reading Parquet takes room in %s; set TMPDIR to a place with more", os.TempDir())
	}
	return named
}

// copyTo writes all ticks into a recording.
func (f *foreign) copyTo(ctx context.Context, reader *parquet.Reader, path string) error {
	var w *store.Writer
	for {
		s, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && w == nil {
			w, err = store.Create(osFS, path, store.WriterOptions{Sync: -1, EncoderOptions: store.EncoderOptions{
				Interval: time.Duration(s.Interval), Meta: f.keep(s.Run.Host)}})
		}
		if err == nil {
			err = w.Put(s)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			if w != nil {
				err = errors.Join(err, w.Abandon())
			}
			return err
		}
	}
	if w == nil {
		return errors.New("it has no ticks")
	}
	for _, e := range reader.Events() {
		if err := w.WriteEvent(store.Event(e)); err != nil {
			return errors.Join(err, w.Abandon())
		}
	}
	return w.Close()
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
	for _, k := range slices.Sorted(maps.Keys(f.meta)) {
		v := f.meta[k]
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

// metadata is that of all runs; a later one's counts where they differ.
func (o *opened) metadata() map[string]string {
	if o.foreign != nil {
		return o.foreign.meta
	}
	return runsMetadata(o.Info())
}

func runsMetadata(info store.Info) map[string]string {
	out := map[string]string{}
	for _, r := range info.Runs {
		maps.Copy(out, r.Meta)
	}
	return out
}

// warn says what of a Parquet file is not here.
func (o *opened) warn(w io.Writer) {
	if o.foreign == nil {
		return
	}
	if n := len(o.foreign.report.Skipped); n > 0 {
		first := o.foreign.report.Skipped[0]
		fmt.Fprintf(w, "rezolus: warning: %s: %d columns are not read, such as %q: %s\n", o.path, n, first.Column, first.Reason)
	}
	if n := o.foreign.report.Cells; n > 0 {
		fmt.Fprintf(w, "rezolus: warning: %s: %d histograms are not whole and left out\n", o.path, n)
	}
	if len(o.foreign.dropped) > 0 {
		fmt.Fprintf(w, "rezolus: warning: %s: metadata too long for a recording: %s\n", o.path, strings.Join(o.foreign.dropped, ", "))
	}
}

// complain says that the recording that was copied is damaged.
func (o *opened) complain(w io.Writer) {
	if n := len(o.Info().Damage); n > 0 {
		fmt.Fprintf(w, "rezolus: warning: %s is damaged in %d places, which are left out; rezolus recording check says where\n", o.path, n)
	}
}

// copied says what a copy has.
func copied(path string, made store.Copied) string {
	return fmt.Sprintf("%s: %d ticks, %d bytes", path, made.Ticks, made.Bytes)
}
