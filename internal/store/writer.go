// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/vfs"
)

// DefaultSync is the time from one fsync to the next while recording: what a
// power cut may cost. A killed process loses nothing that was put.
const DefaultSync = 2 * time.Second

// errBroken is returned for raw records that cannot follow what is there.
var errBroken = errors.New("records do not follow: begin with the stream's header and run record again")

// WriterOptions say how a file is written. The zero value is good.
type WriterOptions struct {
	EncoderOptions
	Sync time.Duration // 0: DefaultSync; negative: only at Close
	// Rows leaves the ticks in rows when the file is closed. They take three
	// times the space, but nothing besides the file is ever written.
	Rows bool
}

// Writer appends ticks to a recording. One goroutine may use it.
type Writer struct {
	file vfs.File
	path string
	sync time.Duration
	enc  *Encoder
	buf  []byte

	size    int64 // of the whole records in the file
	torn    bool  // there may be more in the file than that
	synced  time.Time
	syncing chan error // where the outcome of the present sync comes; nil: none
	lost    Gap        // ticks that are not in the file; the next record tells
	raw     bool       // a chain of raw records is open
	total   endFront
	shadow  *shadow // nil: the rows stay
}

// Create makes a new recording. It is written under its own name from the
// start, so that it can be read while it grows and after a crash; a file
// that is already there is never touched (fs.ErrExist).
func Create(fsys vfs.FS, path string, o WriterOptions) (*Writer, error) {
	f, err := fsys.Create(path)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("create %s: %w: choose another name or remove it first", path, fs.ErrExist)
	}
	if err != nil {
		return nil, fmt.Errorf("create recording: %w", err)
	}
	if o.Sync == 0 {
		o.Sync = DefaultSync
	}
	w := &Writer{file: f, path: path, sync: o.Sync, enc: NewEncoder(o.EncoderOptions), synced: time.Now()}
	w.enc.headed = true
	header := appendHeader(nil)
	_, err = f.Write(header)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = fsys.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create %s: %w", path, err), f.Close(), fsys.Remove(path))
	}
	w.size = int64(len(header))
	if !o.Rows {
		w.shadow = &shadow{fs: fsys, path: path, rows: f, off: w.size}
	}
	return w, nil
}

// Put appends a tick. After an error of the disk the file holds every tick
// that was put before; the tick is lost and counted, and a later Put may
// succeed: it then says in a gap record what is missing.
func (w *Writer) Put(s *metric.Snapshot) error {
	w.raw = false
	buf, err := w.enc.Append(w.begin(), s)
	if err != nil {
		return fmt.Errorf("record into %s: %w", w.path, err)
	}
	w.buf = buf
	return w.commit(1, s.Missed, s.Wall, s.Wall)
}

// begin starts what is to be appended with the gap that is to be told.
func (w *Writer) begin() []byte {
	if w.lost.Ticks == 0 {
		return w.buf[:0]
	}
	return w.enc.AppendGap(w.buf[:0], w.lost)
}

// commit appends w.buf, which holds ticks from one wall time to another, that
// tell of so many that were missed.
func (w *Writer) commit(ticks, missed uint64, from, to int64) error {
	if err := w.append(); err != nil {
		w.lose(Gap{From: from, To: to, Ticks: ticks + missed, Reason: err.Error()})
		return err
	}
	w.total.ticks += ticks
	w.total.lost += w.lost.Ticks
	w.lost = Gap{}
	return w.syncLater()
}

// lose adds to what is missing, until it can be told.
func (w *Writer) lose(g Gap) {
	if w.lost.Ticks == 0 {
		w.lost.From, w.lost.Reason = g.From, g.Reason
	}
	w.lost.To = g.To
	w.lost.Ticks += g.Ticks
	w.raw = false
	w.enc.Restart()
}

// syncLater syncs while the writer goes on, if it is time: a disk that takes
// a second to sync must not hold up ticks. It returns the error of the sync
// before.
func (w *Writer) syncLater() error {
	if w.sync < 0 || time.Since(w.synced) < w.sync {
		return nil
	}
	var err error
	if w.syncing != nil {
		select {
		case err = <-w.syncing:
		default:
			return nil // it is still at it
		}
	}
	w.synced = time.Now()
	done, file := make(chan error, 1), w.file
	w.syncing = done
	go func() { done <- file.Sync() }()
	if err != nil {
		return fmt.Errorf("sync %s: %w", w.path, err)
	}
	return nil
}

// PutRaw appends whole records as a stream brought them (Record.Raw), one or
// more; the stream's end record is left out. The first after a Put, a gap or
// a failed PutRaw must be a run record. They are checked and not decoded.
func (w *Writer) PutRaw(raw []byte) error {
	w.enc.Restart() // a Put after this begins a chain of its own
	open, ticks, missed, from, to := w.raw, uint64(0), uint64(0), int64(0), int64(0)
	w.buf = w.begin()
	for b := raw; len(b) > 0; {
		rec, err := parseRecord(b)
		t := tickFront{}
		if err == nil && rec.Type == TypeTick {
			if t, err = parseTick(rec); ticks == 0 {
				from = t.wall
			}
			to = t.wall
			ticks++
			missed += t.missed
		}
		if open = open || rec.Type == TypeRun; !open && err == nil {
			err = errBroken
		}
		if err != nil {
			return fmt.Errorf("record into %s: %w", w.path, err)
		}
		if rec.Type != TypeEnd {
			w.buf = append(w.buf, rec.Raw...)
		}
		b = b[len(rec.Raw):]
	}
	w.raw = open
	return w.commit(ticks, missed, from, to)
}

// WriteGap records that ticks are missing, and why.
func (w *Writer) WriteGap(g Gap) error {
	w.raw = false
	w.buf = w.enc.AppendGap(w.begin(), g)
	if err := w.append(); err != nil {
		w.lose(g)
		return err
	}
	w.total.lost += w.lost.Ticks + g.Ticks
	w.lost = Gap{}
	return nil
}

// append writes w.buf behind the last whole record. After an error nothing
// of it stays.
func (w *Writer) append() error {
	if w.torn {
		if err := w.file.Truncate(w.size); err != nil {
			return fmt.Errorf("cut the torn record off %s: %w", w.path, err)
		}
		w.torn = false
	}
	n, err := w.file.Write(w.buf)
	if err != nil {
		// Cut it off now, while we are here; if that fails, readers skip it
		// and the next append tries again.
		w.torn = n > 0 && w.file.Truncate(w.size) != nil
		if w.shadow != nil && errors.Is(err, syscall.ENOSPC) {
			w.shadow.yield()
		}
		return fmt.Errorf("record into %s: %w", w.path, err)
	}
	w.size += int64(n)
	if w.shadow != nil {
		w.shadow.follow(w.size)
	}
	return nil
}

// Sync returns when everything put so far is on the disk. When it fails the
// ticks are in the file, but a power cut may take them.
func (w *Writer) Sync() error {
	w.synced = time.Now()
	err := w.file.Sync()
	if w.syncing != nil { // what it could not sync, the kernel may not try again
		err = errors.Join(err, <-w.syncing)
		w.syncing = nil
	}
	if err != nil {
		return fmt.Errorf("sync %s: %w", w.path, err)
	}
	return nil
}

// Size is the length of the recording in bytes.
func (w *Writer) Size() int64 { return w.size }

// Lost is the gap of ticks that could not be written and of which the file
// does not tell yet. It is the zero Gap when there is none.
func (w *Writer) Lost() Gap { return w.lost }

// Abandon closes the file as it is: for one whose disk fails.
func (w *Writer) Abandon() error {
	if w.shadow != nil {
		w.shadow.finish(false, 0, endFront{}, false)
	}
	if err := w.file.Close(); err != nil {
		return fmt.Errorf("close %s: %w", w.path, err)
	}
	return nil
}

// WriteEvent records a line of text with a time.
func (w *Writer) WriteEvent(e Event) error {
	e.Text = e.Text[:min(len(e.Text), 4096)]
	w.buf = frontRecord(w.begin(), TypeEvent, flagSkip, e.append)
	if err := w.append(); err != nil {
		w.raw = false
		w.enc.Restart()
		return err
	}
	w.total.lost += w.lost.Ticks
	w.lost = Gap{}
	return nil
}

// Close writes what is outstanding and the end record, syncs and closes the
// file, and puts the sealed form in its place. The file is closed even when
// there is an error. Where sealing fails, for want of space for instance, the
// rows stay, which are as good.
func (w *Writer) Close() error { return w.end(flagSkip) }

// GoOn closes the file as Close does, but says in it that another goes on
// with what it recorded: series do not end here.
func (w *Writer) GoOn() error { return w.end(flagSkip | flagGoesOn) }

func (w *Writer) end(flags byte) error {
	end := w.total
	end.lost += w.lost.Ticks
	w.buf = frontRecord(w.begin(), TypeEnd, flags, end.append)
	err := w.append()
	if err == nil {
		err = w.Sync()
	}
	if w.shadow != nil {
		if size, ok := w.shadow.finish(err == nil && end.ticks > 0, w.size, end, flags&flagGoesOn != 0); ok {
			w.size = size
		}
	}
	if cerr := w.file.Close(); cerr != nil && err == nil {
		err = fmt.Errorf("close %s: %w", w.path, cerr)
	}
	return err
}
