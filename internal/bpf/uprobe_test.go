// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"unsafe"
)

// image is a small ELF file: a segment of code at offset 0 and address
// 0x10000, and tables of symbols.
type image struct {
	symbols, dynamic []elf.Sym64
	versions         []uint16 // of the dynamic ones
	names            string
	machine          elf.Machine
	section          string // one more, empty
}

func (m *image) name(s string) uint32 {
	m.names += "\x00" + s + "\x00"
	return uint32(len(m.names) - len(s) - 1)
}

func (m *image) function(table *[]elf.Sym64, name string, at uint64, kind elf.SymType, bind elf.SymBind, section uint16) {
	*table = append(*table, elf.Sym64{Name: m.name(name), Info: elf.ST_INFO(bind, kind), Shndx: section, Value: at, Size: 16})
}

func (m *image) bytes() []byte {
	var body bytes.Buffer
	put := func(v any) (offset, size uint64) {
		offset = 64 + 56 + uint64(body.Len())
		if err := binary.Write(&body, binary.LittleEndian, v); err != nil {
			panic(err) // a type that is no number
		}
		return offset, 64 + 56 + uint64(body.Len()) - offset
	}
	sections := []elf.Section64{{}}
	add := func(name string, kind elf.SectionType, link uint32, v any) {
		s := elf.Section64{Name: m.name(name), Type: uint32(kind), Link: link}
		s.Off, s.Size = put(v)
		sections = append(sections, s)
	}
	if m.section != "" {
		add(m.section, elf.SHT_PROGBITS, 0, []byte{0})
	}
	names := uint32(len(sections))
	for _, n := range []string{".strtab", ".symtab", ".dynsym", ".gnu.version"} {
		m.name(n) // the table of names must not grow any more
	}
	table := m.names
	add(".strtab", elf.SHT_STRTAB, 0, []byte(table+strings.Repeat("\x00.strtab\x00", 8)))
	if m.symbols != nil {
		add(".symtab", elf.SHT_SYMTAB, names, m.symbols)
	}
	if m.dynamic != nil {
		add(".dynsym", elf.SHT_DYNSYM, names, m.dynamic)
		add(".gnu.version", elf.SHT_GNU_VERSYM, 0, m.versions)
	}
	for i := range sections[1:] {
		s := &sections[1+i]
		name := m.names[s.Name : int(s.Name)+strings.IndexByte(m.names[s.Name:], 0)]
		s.Name = uint32(strings.Index(table, "\x00"+name+"\x00") + 1)
	}
	at, _ := put(sections)
	header := elf.Header64{Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(elf.ET_DYN), Machine: uint16(m.machine), Version: 1,
		Phoff: 64, Shoff: at, Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64, Shnum: uint16(len(sections)), Shstrndx: uint16(names)}
	code := elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_X | elf.PF_R), Vaddr: 0x10000, Filesz: 0x1000, Memsz: 0x2000}
	var file bytes.Buffer
	for _, v := range []any{header, code} {
		if err := binary.Write(&file, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	return append(file.Bytes(), body.Bytes()...)
}

// everything has a symbol of each kind.
func everything() *image {
	m := &image{machine: ourMachine, versions: []uint16{1, 0x8002, 3, 0x8002, 1, 1, 1}, names: "\x00"}
	m.name(m.section)
	m.function(&m.symbols, "plain", 0x10100, elf.STT_FUNC, elf.STB_LOCAL, 1)
	m.function(&m.symbols, "twice", 0x10200, elf.STT_FUNC, elf.STB_LOCAL, 1)
	m.function(&m.symbols, "twice", 0x10300, elf.STT_FUNC, elf.STB_LOCAL, 1)
	m.function(&m.symbols, "exported", 0x10e00, elf.STT_FUNC, elf.STB_LOCAL, 1)
	m.function(&m.symbols, "data", 0x10400, elf.STT_OBJECT, elf.STB_GLOBAL, 1)
	m.function(&m.symbols, "elsewhere", 0x30000, elf.STT_FUNC, elf.STB_GLOBAL, 1)
	m.function(&m.symbols, "c++", 0x10900, elf.STT_FUNC, elf.STB_GLOBAL, 1)
	m.function(&m.dynamic, "", 0, elf.STT_NOTYPE, elf.STB_LOCAL, 0)
	m.function(&m.dynamic, "exported", 0x10500, elf.STT_FUNC, elf.STB_GLOBAL, 1) // an older version
	m.function(&m.dynamic, "exported", 0x10600, elf.STT_FUNC, elf.STB_GLOBAL, 1)
	m.function(&m.dynamic, "old", 0x10700, elf.STT_FUNC, elf.STB_GLOBAL, 1)
	m.function(&m.dynamic, "imported", 0, elf.STT_NOTYPE, elf.STB_GLOBAL, 0)
	m.function(&m.dynamic, "chosen", 0x10800, elf.STT_GNU_IFUNC, elf.STB_GLOBAL, 1)
	// The name of this one is the end of another.
	m.dynamic = append(m.dynamic, elf.Sym64{Name: m.dynamic[1].Name + 2, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: 1, Value: 0x10a00, Size: 16})
	return m
}

func TestSymbolsAreFound(t *testing.T) {
	file := bytes.NewReader(everything().bytes())
	for symbol, want := range map[string]place{
		"plain":      {offset: 0x100},
		"plain+0xf":  {offset: 0x10f, inside: true},
		"plain+15":   {offset: 0x10f, inside: true},
		"plain+0":    {offset: 0x100},
		"exported":   {offset: 0x600}, // the default version, not another source's static function
		"old":        {offset: 0x700},
		"c+++0x1":    {offset: 0x901, inside: true},
		"ported":     {offset: 0xa00},
		"ported+0x2": {offset: 0xa02, inside: true},
	} {
		if got, err := findSymbol(file, symbol); err != nil || got != want {
			t.Errorf("%s is at %+v (%v), want %+v", symbol, got, err, want)
		}
	}
}

func TestSymbolsThatCannotBeUsed(t *testing.T) {
	file := everything().bytes()
	f := func(file []byte, symbol, want string) {
		t.Helper()
		if p, err := findSymbol(bytes.NewReader(file), symbol); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is at %+v (%v), want %q", symbol, p, err, want)
		}
	}
	f(file, "nosuch", "has no function nosuch; `nm` and `nm -D` list")
	f(file, "data", "has no function data")
	f(file, "imported", "calls imported and does not have it; name the library")
	f(file, "chosen", "several functions for chosen")
	f(file, "twice", "several functions twice")
	f(file, "elsewhere", "not as code")
	f(file, "plain+0x10", "has only 16 bytes of plain")
	f(file, "plain+", "want symbol, or symbol+0x10")
	f(file, "+0x10", "want symbol, or symbol+0x10")
	f(file, "plain+x", "want symbol, or symbol+0x10")
	stripped := everything()
	stripped.symbols = nil
	f(stripped.bytes(), "plain", "is stripped of the others; `nm -D`")
	other := everything()
	other.machine = elf.EM_S390
	f(other.bytes(), "plain", "for another machine (EM_S390")
	f([]byte("#!/bin/sh\n"), "plain", "neither a program nor a library")
	for i := range file {
		if p, err := findSymbol(bytes.NewReader(file[:i]), "plain"); err == nil {
			t.Fatalf("the first %d of %d bytes have it at %+v", i, len(file), p)
		}
	}
}

// TestFunctionsOfGo holds what the file has at the place against what the
// process executes; the test's own program may be stripped or not.
func TestFunctionsOfGo(t *testing.T) {
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := images{}.find(name, "rezolus/internal/bpf.TestFunctionsOfGo")
	if err != nil || !p.golang || p.file != name {
		t.Fatalf("place %+v: %v", p, err)
	}
	file, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	runs := unsafe.Slice((*byte)(reflect.ValueOf(TestFunctionsOfGo).UnsafePointer()), 64)
	if !bytes.Equal(file[p.offset:p.offset+64], runs) {
		t.Errorf("at %#x the file has % x, the function is % x", p.offset, file[p.offset:p.offset+64], runs)
	}
	if err := p.mayTime(); err == nil || !strings.Contains(err.Error(), "is a Go program") || !strings.Contains(err.Error(), "set latency = false") {
		t.Errorf("timed: %v", err)
	}
	if _, err := (images{}).find(name, "rezolus/internal/bpf.nosuch"); err == nil || !strings.Contains(err.Error(), name+" has no function") {
		t.Errorf("a function that is not there: %v", err)
	}
}

func TestOccurrencesOfANameInPieces(t *testing.T) {
	// Each begins at another distance from the end of the reader's buffer.
	var text strings.Builder
	want := map[uint32]bool{}
	for i := range 5000 {
		text.WriteString(strings.Repeat("x", i%61))
		if i%7 == 0 {
			want[uint32(text.Len())] = true
			text.WriteString("name\x00")
		} else {
			text.WriteString("named\x00")
		}
	}
	for _, r := range []func() map[uint32]bool{
		func() map[uint32]bool { at, _ := occurrences(strings.NewReader(text.String()), "name"); return at },
		func() map[uint32]bool {
			at, _ := occurrences(iotest.OneByteReader(strings.NewReader(text.String())), "name")
			return at
		},
	} {
		if got := r(); !reflect.DeepEqual(got, want) {
			t.Errorf("%d found, want %d", len(got), len(want))
		}
	}
	if _, err := occurrences(iotest.ErrReader(os.ErrClosed), "name"); err != os.ErrClosed {
		t.Errorf("a reader that fails: %v", err)
	}
}

func TestLibrariesAreFound(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	library := string(everything().bytes())
	foreign := everything()
	foreign.machine = elf.EM_386
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	libc := write("usr/lib/"+triplet+"/libc.so.6", library)
	write("usr/lib/"+triplet+"/libc.so", "/* GNU ld script */")
	write("lib/libforeign.so.1", string(foreign.bytes()))
	own := write("opt/own/lib/libown-2.4.so", library)
	write("etc/ld.so.conf.d/own.conf", "# ours\n/opt/own/lib # here\n")
	write("lib64/libssl.so.1", library)
	three := write("lib64/libssl.so.3", library)
	if err := os.Symlink("libssl.so.3", filepath.Join(root, "lib64/libssl.so.three")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"libc.so.6": libc, "c": libc, "libc": libc, "libown-2.4.so": own, "own-2.4": own, "libssl.so.3": three} {
		if got, err := findLibrary(root, name); err != nil || got != want {
			t.Errorf("%s is %s (%v), want %s", name, got, err, want)
		}
	}
	for name, want := range map[string]string{"libforeign.so.1": "no library libforeign.so.1 in", "nosuch": "give its path",
		"ssl": "libssl.so.1 or ", "[": "library [: syntax error"} {
		if got, err := findLibrary(root, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is %s (%v), want %q", name, got, err, want)
		}
	}
}

func FuzzFindSymbol(f *testing.F) {
	f.Add(everything().bytes(), "exported")
	f.Add(everything().bytes(), "plain+0x1")
	stripped := everything()
	stripped.symbols, stripped.section = nil, ".gopclntab"
	f.Add(stripped.bytes(), "main.main")
	f.Fuzz(func(t *testing.T, file []byte, symbol string) {
		if p, err := findSymbol(bytes.NewReader(file), symbol); err == nil && p.offset == 0 && p.inside {
			t.Errorf("place %+v", p)
		}
	})
}
