// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"

	pq "github.com/parquet-go/parquet-go"

	"rezolus/internal/metric"
)

// Skipped is a column that is not read, and why.
type Skipped struct {
	Column string
	Reason string
}

// Report says what of a file was not read.
type Report struct {
	Skipped []Skipped
	// Cells is how many histograms were left out because they do not have
	// the number of buckets that their column says, or lack some.
	Cells uint64
	// Renamed is how many columns have a name or a label that had to be
	// changed to be one here.
	Renamed int
}

// Reader reads a file of ticks, row group by row group. It is not safe for
// concurrent use.
type Reader struct {
	file   *pq.File
	meta   map[string]string
	facts  *facts // nil in a file of others
	report Report
	events []Event

	time, duration *input
	origins        []*origin
	byColumn       map[int]*input // series by the number of their column

	group, row, rows int   // the open row group, the next row, and how many it has
	at               int64 // the number of the next row in the file
	tick             metric.Snapshot
	next             []factCursor
	clock            int64
	last             int64 // time of the row before
	buf              [1024]pq.Value
}

// origin is a source, as far as the file says what was one.
type origin struct {
	name         string
	columns      []*input
	begin, width *input
	schema       *metric.Schema
	lost         uint64
}

// Open opens a file. The error is ErrForeign, ErrDamaged or ErrUnsupported,
// or that of r.
func Open(r io.ReaderAt, size int64) (out *Reader, err error) {
	defer guard(&err)
	if err := checkMagic(r, size); err != nil {
		return nil, err
	}
	file, err := pq.OpenFile(r, size, pq.SkipPageIndex(true), pq.SkipBloomFilters(true))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	out = &Reader{file: file, meta: map[string]string{}, byColumn: map[int]*input{}}
	for _, kv := range file.Metadata().KeyValueMetadata {
		out.meta[kv.Key] = kv.Value
	}
	if own, ok := out.meta[factsKey]; ok {
		if err := out.ownFacts(own); err != nil {
			return nil, err
		}
	}
	if err := out.columns(); err != nil {
		return nil, err
	}
	out.identify(size)
	var events eventsJSON
	if json.Unmarshal([]byte(out.meta[metaEvents]), &events) == nil {
		for _, e := range events.Events {
			out.events = append(out.events, Event(e))
		}
	}
	return out, nil
}

// guard turns a panic of the library, which trusts parts of a file, into an
// error.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", ErrDamaged, p)
	}
}

// checkMagic tells a file of something else from a damaged one, and keeps a
// footer that claims to be larger than the file from being read.
func checkMagic(r io.ReaderAt, size int64) error {
	var head [4]byte
	var tail [8]byte // the length of the footer, and the magic again
	if size < 12 {
		return fmt.Errorf("%w: %d bytes are too few", ErrForeign, size)
	}
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return fmt.Errorf("read Parquet: %w", err)
	}
	if _, err := r.ReadAt(tail[:], size-8); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read Parquet: %w", err)
	}
	switch {
	case string(head[:]) != magic:
		return fmt.Errorf("%w: it begins with %q", ErrForeign, head[:])
	case string(tail[4:]) != magic:
		return fmt.Errorf("%w: cut short, or its writer did not finish: the footer is missing", ErrDamaged)
	}
	if n := binary.LittleEndian.Uint32(tail[:]); int64(n) > size-12 {
		return fmt.Errorf("%w: a footer of %d bytes in a file of %d", ErrDamaged, n, size)
	}
	return nil
}

// ownFacts takes the facts of a file that a Writer wrote.
func (r *Reader) ownFacts(text string) error {
	f := &facts{}
	if err := json.Unmarshal([]byte(text), f); err != nil || f.Version == 0 {
		return nil // somebody else's key
	}
	if f.Version != factsVersion {
		return fmt.Errorf("%w: its columns have version %d, this one reads version %d", ErrUnsupported, f.Version, factsVersion)
	}
	r.facts = f
	r.next = make([]factCursor, factKinds)
	return nil
}

// Metadata is the file's own: the keys of docs/parquet.md and all others,
// without those that are about columns.
func (r *Reader) Metadata() map[string]string {
	m := maps.Clone(r.meta)
	delete(m, factsKey)
	delete(m, arrowKey)
	maps.DeleteFunc(m, func(k, _ string) bool { return strings.HasPrefix(k, metaBounds) })
	return m
}

// Events are the events that the file has, in its order.
func (r *Reader) Events() []Event { return r.events }

// Report says what was not read so far. The columns are known from the
// beginning.
func (r *Reader) Report() Report { return r.report }

// Rows is the number of ticks.
func (r *Reader) Rows() int64 { return r.file.NumRows() }

// identify says whose ticks these are, if the file does not: one run of one
// agent, known by what the file says of itself.
func (r *Reader) identify(size int64) {
	r.tick.Interval = 1e9
	if ms, err := strconv.ParseInt(r.meta[metaInterval], 10, 64); err == nil && ms > 0 && ms < 1e12 {
		r.tick.Interval = ms * 1e6
	}
	sum := sha256.New()
	for _, k := range []string{metaSource, metaVersion, metaNode, metaPerSource, arrowKey} {
		fmt.Fprintf(sum, "%q", r.meta[k])
	}
	fmt.Fprint(sum, size, r.file.NumRows())
	if groups := r.file.Metadata().RowGroups; len(groups) > 0 && r.time.leaf < len(groups[0].Columns) {
		fmt.Fprintf(sum, "%x", groups[0].Columns[r.time.leaf].MetaData.Statistics.MinValue)
	}
	run := &metric.Run{Host: r.meta[metaNode], Version: r.meta[metaVersion]}
	copy(run.ID[:], sum.Sum(nil))
	var system struct{ Hostname, Kernel, Arch string }
	if json.Unmarshal([]byte(r.meta["systeminfo"]), &system) == nil {
		run.Kernel, run.Arch = system.Kernel, goArch(system.Arch)
		if run.Host == "" {
			run.Host = system.Hostname
		}
	}
	r.tick.Run = run
}

// goArch is Go's name of an architecture that uname names otherwise.
func goArch(arch string) string {
	switch arch {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	}
	return arch
}

// Next reads the next tick. It is overwritten by the one after it. At the
// end the error is io.EOF.
func (r *Reader) Next() (s *metric.Snapshot, err error) {
	defer guard(&err)
	for r.row >= r.rows {
		groups := r.file.RowGroups()
		if r.group >= len(groups) {
			return nil, io.EOF
		}
		if err := r.load(groups[r.group]); err != nil {
			return nil, err
		}
		r.group++
	}
	if err := r.fill(); err != nil {
		return nil, err
	}
	r.row++
	r.at++
	return &r.tick, nil
}

// load decodes the columns of a row group.
func (r *Reader) load(g pq.RowGroup) error {
	rows, chunks := int(g.NumRows()), g.ColumnChunks()
	if rows < 0 || rows > maxGroupRows {
		return fmt.Errorf("%w: a row group of %d rows; at most %d are read", ErrDamaged, rows, maxGroupRows)
	}
	r.row, r.rows = 0, rows
	all := []*input{r.time, r.duration}
	for _, o := range r.origins {
		all = append(append(all, o.begin, o.width), o.columns...)
	}
	for _, in := range all {
		if in == nil {
			continue
		}
		bad, err := in.load(chunks[in.leaf], rows, r.buf[:])
		if err != nil {
			return err
		}
		r.report.Cells += bad
	}
	return nil
}
