// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"rezolus/internal/follow"
	"rezolus/internal/metric"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

// tape is a file that is recorded into. One goroutine may write.
type tape struct {
	path   string // what was asked for
	rows   string // the .rzr file: path, or one beside it until the end
	format string
	writer *store.Writer
	say    func(error)

	troubled error // the last trouble with the file, which may pass
	run      [16]byte
	last     store.Tick
	ticks    atomic.Uint64
	missed   atomic.Uint64
	size     atomic.Int64
}

// formOf is the form of an output: as its name says, unless one is given.
func formOf(path, given string) (string, error) {
	if given == "" {
		return cmp.Or(extensions[strings.ToLower(filepath.Ext(path))], "rzr"), nil
	}
	if !slices.Contains(conversionFormats, given) {
		return "", usage{fmt.Errorf("--format %q: want %s", given, strings.Join(conversionFormats, ", "))}
	}
	return given, nil
}

// createTape makes the file.
func createTape(f *recordFlags, path string, meta map[string]string, say func(error)) (*tape, error) {
	form, err := formOf(path, f.format)
	if err != nil {
		return nil, err
	}
	t := &tape{path: path, rows: path, format: form, say: say}
	if form != "rzr" {
		t.rows = path + ".rzr"
	}
	for _, name := range []string{t.path, t.rows} {
		if f.force {
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("replace recording: %w", err)
			}
		}
		if _, err := os.Lstat(name); err == nil {
			return nil, hint(fmt.Errorf("%s is there already", name), "name another file with -o, or replace it with --force")
		}
	}
	t.writer, err = store.Create(vfs.OS, t.rows, store.WriterOptions{EncoderOptions: store.EncoderOptions{Interval: f.every, Meta: meta}})
	if err != nil {
		return nil, err
	}
	t.size.Store(t.writer.Size())
	return t, nil
}

// put appends a tick.
func (t *tape) put(s *metric.Snapshot) error {
	return t.wrote(t.writer.Put(s), s.Run.ID, store.Tick{Seq: s.Seq, Wall: s.Wall, Interval: s.Interval, Missed: s.Missed})
}

// putRaw appends a tick as it came. Without an error the next may follow it.
func (t *tape) putRaw(tick follow.Tick) error {
	if tick.Gap != nil {
		if err := t.writer.WriteGap(*tick.Gap); err != nil {
			t.trouble(err)
		}
	}
	return t.wrote(t.writer.PutRaw(tick.Raw), tick.Run.ID, tick.Tick)
}

// wrote notes what became of a tick.
func (t *tape) wrote(err error, run [16]byte, tick store.Tick) error {
	t.size.Store(t.writer.Size())
	t.missed.Add(tick.Missed)
	if t.run == run && t.last.Seq != 0 && tick.Seq > t.last.Seq {
		t.missed.Add(tick.Seq - t.last.Seq - 1)
	}
	t.run, t.last = run, tick
	kept := t.writer.Lost().Ticks == 0
	if err != nil {
		t.trouble(err)
	} else {
		t.troubled = nil
	}
	if !kept {
		t.missed.Add(1)
		return err
	}
	t.ticks.Add(1)
	return nil // what could not be synced is there all the same
}

// trouble says what is wrong with the file, once.
func (t *tape) trouble(err error) {
	if t.troubled == nil {
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%w: nothing is recorded until there is room", err)
		}
		t.say(err)
	}
	t.troubled = err
}

// gap and event append what they are.
func (t *tape) gap(g store.Gap) {
	if err := t.writer.WriteGap(g); err != nil {
		t.trouble(err)
	}
}

func (t *tape) event(e store.Event) {
	if err := t.writer.WriteEvent(e); err != nil {
		t.trouble(err)
	}
}

// finish closes the file and makes of it what was asked for. What was recorded
// is never lost: it is in the rows until the other is whole.
func (t *tape) finish() error {
	err := t.writer.Close()
	if err != nil {
		return fmt.Errorf("finish recording: %w", err)
	}
	if t.format != "rzr" && t.ticks.Load() > 0 {
		if err := exportRecording(context.Background(), t.rows, t.path, t.format); err != nil {
			return hint(err, "nothing is lost: %s has it; rezolus recording convert %s -o %s", t.rows, t.rows, t.path)
		}
		if err := os.Remove(t.rows); err != nil {
			return err
		}
	}
	return t.troubled
}

// discard removes a file into which nothing was recorded.
func (t *tape) discard() error {
	return errors.Join(t.writer.Abandon(), os.Remove(t.rows))
}

// leave removes what is not whole, and leaves the rows, for a process that ends
// at once.
func (t *tape) leave() {
	for _, name := range []string{t.rows + ".sealing", t.path + partial} {
		_ = os.Remove(name) // there may be none
	}
}

// summary says what was recorded, in one line.
func (t *tape) summary(took time.Duration) string {
	size := t.writer.Size()
	if info, err := os.Stat(t.path); err == nil {
		size = info.Size()
	}
	line := fmt.Sprintf("%s: %d ticks in %v, %d bytes", t.path, t.ticks.Load(), took.Round(time.Millisecond), size)
	if missed := t.missed.Load(); missed > 0 {
		line += fmt.Sprintf(", %d missed", missed)
	}
	return line
}
