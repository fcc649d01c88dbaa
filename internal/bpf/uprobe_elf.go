// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"debug/elf"
	"debug/gosym"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// functionError is about a function's name or file, and not the kernel: a fix
// of the configuration helps.
type functionError struct{ error }

func (e functionError) Unwrap() error { return e.error }

func wrongFunction(format string, args ...any) error {
	return functionError{fmt.Errorf(format, args...)}
}

// place is an instruction in a file.
type place struct {
	file   string
	offset uint64 // in the file
	inside bool   // not the function's first instruction
	golang bool   // the file has code that Go made
}

// mayTime refuses what would break the program that is measured. To see a
// return the kernel changes the return address on the stack; Go's runtime
// walks and moves stacks and panics on an address that it does not know.
func (p place) mayTime() error {
	switch {
	case p.golang:
		return wrongFunction("%s is a Go program, whose runtime would crash on a changed return address; set latency = false", p.file)
	case p.inside:
		return wrongFunction("only a whole function returns; take the offset off it, or set latency = false")
	}
	return nil
}

// images are the files looked at so far, by the name given.
type images map[string]string

// find finds a symbol ("name" or "name+0x10") in a library or program.
func (m images) find(file, symbol string) (place, error) {
	path := m[file]
	if path == "" {
		var err error
		if path, err = findFile(file); err != nil {
			return place{}, err
		}
		m[file] = path
	}
	f, err := os.Open(path)
	if err != nil {
		return place{}, wrongFunction("%w", err)
	}
	defer f.Close()
	p, err := findSymbol(f, symbol)
	if err != nil {
		return place{}, wrongFunction("%s %w", path, err)
	}
	p.file = path
	return p, nil
}

func findFile(file string) (string, error) {
	if filepath.IsAbs(file) {
		return file, nil
	}
	return findLibrary("/", file)
}

// ourMachine is the one whose programs this kernel's uprobes understand fully;
// 32-bit programs have another stack.
var ourMachine = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]

func openELF(r io.ReaderAt) (*elf.File, error) {
	f, err := elf.NewFile(r)
	switch {
	case err != nil:
		return nil, errors.New("is neither a program nor a library (ELF)")
	case f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB || f.Machine != ourMachine:
		return nil, fmt.Errorf("is for another machine (%v, %v)", f.Machine, f.Class)
	case f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN:
		return nil, fmt.Errorf("is neither a program nor a library (%v)", f.Type)
	}
	return f, nil
}

// findSymbol's error goes on a sentence that begins with the file.
func findSymbol(r io.ReaderAt, symbol string) (place, error) {
	f, err := openELF(r)
	if err != nil {
		return place{}, err
	}
	name, offset, err := splitOffset(symbol)
	if err != nil {
		return place{}, err
	}
	best := definition{}
	for _, s := range f.Sections {
		if s.Type == elf.SHT_SYMTAB || s.Type == elf.SHT_DYNSYM {
			if err := best.search(f, s, name); err != nil {
				return place{}, fmt.Errorf("has a damaged table of symbols: %w", err)
			}
		}
	}
	table := goTable(f)
	if best.rank == 0 && table != nil {
		best.searchGo(f, table, name)
	}
	if err := best.usable(f, name); err != nil {
		return place{}, err
	}
	if offset > 0 && offset >= best.Size {
		return place{}, fmt.Errorf("has only %d bytes of %s, which %s is beyond", best.Size, name, symbol)
	}
	p := place{inside: offset > 0, golang: table != nil || f.Section(".note.go.buildid") != nil}
	for _, seg := range f.Progs {
		if at := best.Value - seg.Vaddr; seg.Type == elf.PT_LOAD && seg.Flags&elf.PF_X != 0 && best.Value >= seg.Vaddr && at < seg.Filesz && offset < seg.Filesz-at {
			p.offset = seg.Off + at + offset
			return p, nil
		}
	}
	return place{}, fmt.Errorf("has %s, but not as code", name)
}

// splitOffset takes "+0x10" off a symbol. Names may have a plus themselves.
func splitOffset(symbol string) (name string, offset uint64, err error) {
	i := strings.LastIndexByte(symbol, '+')
	if i < 0 {
		return symbol, 0, nil
	}
	offset, err = strconv.ParseUint(symbol[i+1:], 0, 32)
	if err != nil || i == 0 {
		return "", 0, fmt.Errorf("cannot be searched for %q: want symbol, or symbol+0x10", symbol)
	}
	return symbol[:i], offset, nil
}

// definition is the best symbol of a name so far.
type definition struct {
	elf.Sym64
	rank    int // 0: none
	another bool
}

// The ranks: one file may have a name several times, as other sources' static
// functions or as older versions of an exported one.
const (
	undefined = 1 + iota
	static
	superseded
	global
)

func (d *definition) search(f *elf.File, table *elf.Section, name string) error {
	if int(table.Link) >= len(f.Sections) {
		return errors.New("it has no names")
	}
	names := f.Sections[table.Link]
	if names.ReaderAt == nil || table.ReaderAt == nil {
		return errors.New("it is compressed")
	}
	at, err := occurrences(io.NewSectionReader(names.ReaderAt, 0, int64(names.FileSize)), name)
	if err != nil || len(at) == 0 {
		return err
	}
	versions := f.Section(".gnu.version")
	buf := make([]byte, 24*4096)
	for first := uint64(0); first*24 < table.FileSize; first += 4096 {
		n, err := table.ReadAt(buf[:min(uint64(len(buf)), table.FileSize-first*24)], int64(first*24))
		if err != nil && err != io.EOF {
			return err
		}
		for i := 0; i+24 <= n; i += 24 {
			if at[binary.LittleEndian.Uint32(buf[i:])] {
				d.consider(parseSym(buf[i:]), table.Type == elf.SHT_DYNSYM && hidden(versions, first+uint64(i/24)))
			}
		}
		if n == 0 {
			break
		}
	}
	return nil
}

// goTable is the section in which Go's runtime finds the functions of a
// program, under the name of an executable or of one whose addresses move; nil
// where no code is Go's.
func goTable(f *elf.File) *elf.Section {
	if s := f.Section(".gopclntab"); s != nil {
		return s
	}
	return f.Section(".data.rel.ro.gopclntab")
}

// searchGo finds a function of a stripped Go program, which keeps that table.
func (d *definition) searchGo(f *elf.File, table *elf.Section, name string) {
	text := f.Section(".text")
	data, err := table.Data()
	if err != nil || text == nil {
		return
	}
	functions, err := gosym.NewTable(nil, gosym.NewLineTable(data, text.Addr))
	if err != nil {
		return
	}
	if fn := functions.LookupFunc(name); fn != nil {
		*d = definition{Sym64: elf.Sym64{Info: uint8(elf.STT_FUNC), Value: fn.Entry, Size: fn.End - fn.Entry}, rank: global}
	}
}

func parseSym(b []byte) elf.Sym64 {
	return elf.Sym64{Name: binary.LittleEndian.Uint32(b), Info: b[4], Other: b[5], Shndx: binary.LittleEndian.Uint16(b[6:]),
		Value: binary.LittleEndian.Uint64(b[8:]), Size: binary.LittleEndian.Uint64(b[16:])}
}

// hidden tells whether a dynamic symbol is not the default version of its name
// (System V gABI, symbol versioning: bit 15).
func hidden(versions *elf.Section, i uint64) bool {
	var b [2]byte
	if versions == nil || versions.ReaderAt == nil {
		return false
	}
	_, err := versions.ReadAt(b[:], int64(i*2))
	return err == nil && b[1]&0x80 != 0
}

func (d *definition) consider(s elf.Sym64, hidden bool) {
	kind := elf.ST_TYPE(s.Info)
	rank := global
	switch {
	case kind != elf.STT_FUNC && kind != elf.STT_GNU_IFUNC && (kind != elf.STT_NOTYPE || s.Shndx != 0):
		return
	case s.Shndx == uint16(elf.SHN_UNDEF):
		rank = undefined
	case hidden:
		rank = superseded
	case elf.ST_BIND(s.Info) == elf.STB_LOCAL:
		rank = static
	}
	if rank == d.rank && s.Value != d.Value {
		d.another = true
	}
	if rank > d.rank {
		*d = definition{Sym64: s, rank: rank}
	}
}

func (d *definition) usable(f *elf.File, name string) error {
	switch {
	case d.rank == 0 && f.Section(".symtab") == nil:
		return fmt.Errorf("has no function %s among those it exports, and is stripped of the others; `nm -D` lists them", name)
	case d.rank == 0:
		return fmt.Errorf("has no function %s; `nm` and `nm -D` list those it has", name)
	case d.rank == undefined:
		return fmt.Errorf("calls %s and does not have it; name the library that does", name)
	case elf.ST_TYPE(d.Info) == elf.STT_GNU_IFUNC:
		return fmt.Errorf("has several functions for %s, of which each process chooses one at its start (IFUNC); name that one, such as __%s_avx2", name, name)
	case d.rank == static && d.another:
		return fmt.Errorf("has several functions %s, which cannot be told apart", name)
	}
	return nil
}

// occurrences are the offsets at which a name can begin in a table of names:
// linkers let one name be the end of another.
func occurrences(r io.Reader, name string) (map[uint32]bool, error) {
	want := append([]byte(name), 0)
	at := map[uint32]bool{}
	buf := make([]byte, max(64<<10, 2*len(want)))
	kept, base := 0, 0
	for {
		n, err := io.ReadFull(r, buf[kept:])
		have := buf[:kept+n]
		for i := 0; ; i++ {
			j := bytes.Index(have[i:], want)
			if j < 0 {
				break
			}
			i += j
			at[uint32(base+i)] = true
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return at, nil
		}
		if err != nil {
			return nil, err
		}
		kept = copy(buf, have[len(have)-len(want)+1:])
		base += len(have) - kept
	}
}
