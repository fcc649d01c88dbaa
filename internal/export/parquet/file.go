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

// File is a file of ticks. It reads of it what it is asked for: its metadata,
// columns (query.Reader), or ticks one by one (Ticks). It is safe for
// concurrent use.
type File struct {
	r      io.ReaderAt
	size   int64
	footer *footer
	root   *node
	meta   map[string]string
	facts  *facts // nil in a file of others
	report Report
	events []Event

	time, duration *input
	origins        []*origin
	series         map[int]*input // by the number of their column
	lives          map[int]*life
	firsts         []int64 // of the row groups: the number of the first row
	earliest       []int64 // of the row groups: no row of it or behind it is before that
	first, last    int64   // times of the first and the last row that show
	run            metric.Run
	interval       int64
}

// origin is a source, as far as the file says what was one.
type origin struct {
	name         string
	columns      []*input
	begin, width *input
}

// Open reads the metadata of a file. The error is ErrForeign, ErrDamaged or
// ErrUnsupported, or that of r.
func Open(r io.ReaderAt, size int64) (out *File, err error) {
	defer guard(&err)
	if err := checkMagic(r, size); err != nil {
		return nil, err
	}
	foot, err := readFooter(r, size)
	if err != nil {
		return nil, err
	}
	out = &File{r: r, size: size, footer: foot, root: foot.root, meta: foot.kv, series: map[int]*input{}}
	if own, ok := out.meta[factsKey]; ok {
		if err := out.ownFacts(own); err != nil {
			return nil, err
		}
	}
	if err := out.columns(); err != nil {
		return nil, err
	}
	if err := out.times(); err != nil {
		return nil, err
	}
	out.live()
	out.identify()
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
func (f *File) ownFacts(text string) error {
	own := &facts{}
	if err := json.Unmarshal([]byte(text), own); err != nil || own.Version == 0 {
		return nil // somebody else's key
	}
	if own.Version != factsVersion {
		return fmt.Errorf("%w: its columns have version %d, this one reads version %d", ErrUnsupported, own.Version, factsVersion)
	}
	f.facts = own
	return nil
}

// Metadata is the file's own: the keys of docs/parquet.md and all others,
// without those that are about columns.
func (f *File) Metadata() map[string]string {
	m := maps.Clone(f.meta)
	delete(m, factsKey)
	delete(m, arrowKey)
	maps.DeleteFunc(m, func(k, _ string) bool { return strings.HasPrefix(k, metaBounds) })
	return m
}

// Events are the events that the file has, in its order.
func (f *File) Events() []Event { return f.events }

// Gaps are the gaps that the file has, in its order.
func (f *File) Gaps() (all []Gap) {
	if f.facts != nil {
		for _, b := range f.facts.Breaks {
			all = append(all, Gap{b.From, b.To, b.Ticks, b.Reason})
		}
	}
	return all
}

// Report says which columns are not read.
func (f *File) Report() Report { return f.report }

// Rows is the number of ticks.
func (f *File) Rows() int64 { return f.footer.rows }

// identify says whose ticks these are, if the file does not: one run of one
// agent, known by what the file says of itself.
func (f *File) identify() {
	f.interval = 1e9
	if ms, err := strconv.ParseInt(f.meta[metaInterval], 10, 64); err == nil && ms > 0 && ms < 1e12 {
		f.interval = ms * 1e6
	}
	sum := sha256.New()
	for _, k := range []string{metaSource, metaVersion, metaNode, metaPerSource, arrowKey} {
		fmt.Fprintf(sum, "%q", f.meta[k])
	}
	first, _ := f.Bounds()
	fmt.Fprint(sum, f.size, f.footer.rows, first)
	run := &f.run
	run.Host, run.Version = f.meta[metaNode], f.meta[metaVersion]
	run.Started = first
	copy(run.ID[:], sum.Sum(nil))
	var system struct{ Hostname, Kernel, Arch string }
	if json.Unmarshal([]byte(f.meta["systeminfo"]), &system) == nil {
		run.Kernel, run.Arch = system.Kernel, goArch(system.Arch)
		if run.Host == "" {
			run.Host = system.Hostname
		}
	}
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
