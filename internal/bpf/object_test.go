// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"rezolus/internal/metric"
)

func TestWhatIsNoProbe(t *testing.T) {
	if _, err := Parse("x", strings.NewReader("not an ELF")); !errors.Is(err, ErrObject) || !strings.Contains(err.Error(), "probe x") {
		t.Errorf("text: %v", err)
	}
	f, err := os.Open("testdata/hist.bpf.o")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Parse("hist", f); !errors.Is(err, ErrObject) || !strings.Contains(err.Error(), "no way to attach") {
		t.Errorf("an object of another kind: %v", err)
	}
}

func TestTags(t *testing.T) {
	f := func(want string, tags ...string) {
		t.Helper()
		e := member{desc: &metric.Desc{}, combos: [][]string{{}}}
		var err error
		for _, tag := range tags {
			key, value, _ := strings.Cut(tag, ":")
			if err = e.tag(key, value); err != nil {
				break
			}
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", tags, err, want)
		}
	}
	f("unknown tag", "metrc:x")
	f("kind:summary", "kind:summary")
	f("kind:histogram/9", "kind:histogram/9")
	f("only per:cpu", "per:core")
	f("want label:KEY=", "label:op")
	f("for CPUs", "label:id=1|2")
	f("there twice", "label:op=a|b|a")
	f("empty", "label:op=a|")
	f("more than 4096 series", "label:a=1|2|3|4|5|6|7|8|9", "label:b=1|2|3|4|5|6|7|8|9", "label:c=1|2|3|4|5|6|7|8|9", "label:d=1|2|3|4|5|6|7|8|9")
	e := member{desc: &metric.Desc{Name: "m", Kind: metric.Counter, Sampler: "s"}, combos: [][]string{{}}}
	if err := errors.Join(e.label("b=1|2"), e.label("a=3")); err != nil {
		t.Fatal(err)
	}
	if err := e.checkDimensions([]int{3}); err == nil || !strings.Contains(err.Error(), "its dimensions are [3]; its labels and kind make [2]") {
		t.Errorf("an array of the wrong length: %v", err)
	}
	e.desc.Keys = []string{"a", "b"}
	if got := e.values(e.combos[1], nil); !slices.Equal(got, []string{"3", "2"}) {
		t.Errorf("values in the order of the keys are %q", got)
	}
}

var u64 = &btf.Int{Name: "u64", Size: 8, Encoding: btf.Unsigned}

// array is u64[dims...].
func array(dims ...int) btf.Type {
	var t btf.Type = u64
	for _, n := range slices.Backward(dims) {
		t = &btf.Array{Type: t, Nelems: uint32(n)}
	}
	return t
}

// bankOf is a map whose value is TOUCHED, if it is a domain's, and one member
// of type t, with room for 497 words.
func bankOf(tag string, t btf.Type, tags ...string) *ebpf.MapSpec {
	value := &btf.Struct{Size: 498 * 8}
	if strings.Contains(tag, "=") {
		value.Members = []btf.Member{{Name: "touched", Type: u64}}
	}
	value.Members = append(value.Members, btf.Member{Name: "m", Type: t, Tags: tags, Offset: btf.Bits(64 * len(value.Members))})
	return &ebpf.MapSpec{Name: "banks", Type: ebpf.Array, Flags: 1 << 10, ValueSize: value.Size, Value: value, Tags: []string{tag}}
}

func TestMembersOfABank(t *testing.T) {
	counter := []string{"metric:m", "sampler:s", "kind:counter"}
	histogram := []string{"metric:m", "sampler:s", "kind:histogram/3"}
	with := func(tags []string, more ...string) []string { return append(slices.Clone(tags), more...) }
	f := func(m *ebpf.MapSpec, want string) {
		t.Helper()
		_, err := parseBank(m)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v %v: error %v, want %q", m.Tags, m.Value, err, want)
		}
	}
	f(bankOf("bank:cpu", u64, counter...), "")
	f(bankOf("bank:cpu", &btf.Typedef{Type: &btf.Const{Type: u64}}, counter...), "")
	f(bankOf("bank:cpu", array(497), histogram...), "")
	f(bankOf("bank:cpu", array(2, 3), with(counter, "label:a=1|2", "label:one=x", "label:b=1|2|3")...), "")
	f(bankOf("bank:cpu", array(3, 2), with(counter, "label:a=1|2", "label:b=1|2|3")...), "dimensions are [3 2]; its labels and kind make [2 3]")
	f(bankOf("bank:cpu", array(6), with(counter, "label:a=1|2", "label:b=1|2|3")...), "make [2 3]")
	f(bankOf("bank:cpu", array(252), histogram...), "make [497]")
	f(bankOf("bank:cpu", u64, histogram...), "make [497]")
	f(bankOf("bank:cpu", array(2, 497), with(histogram, "label:a=1|2")...), "ends behind")
	f(bankOf("bank:cpu", &btf.Int{Size: 4}, counter...), "u64")
	f(bankOf("bank:cpu", &btf.Int{Size: 8, Encoding: btf.Signed}, counter...), "u64")
	f(bankOf("bank:cpu", &btf.Pointer{Target: u64}, counter...), "u64")
	f(bankOf("bank:cpu", u64, "metric:m", "kind:counter"), "without metric, kind or sampler")
	f(bankOf("bank:cpu", u64), "without a metric")
	f(bankOf("bank:cgroup=name", u64, with(counter, "per:cpu")...), "banks of CPUs")
	f(bankOf("bank:cgroup=name", u64, with(counter, "lost")...), "banks of CPUs")
	f(bankOf("bank:cgroup=name", u64, counter...), "")
	untouched := bankOf("bank:cgroup=name", u64, counter...)
	untouched.Value.(*btf.Struct).Members[0].Name = "other"
	f(untouched, "begins with TOUCHED")
	f(bankOf("bank:cgruop", u64, counter...), `unknown tag "bank:cgruop"`)
	plain := bankOf("bank:cpu", u64, counter...)
	plain.Flags = 0
	f(plain, "BPF_F_MMAPABLE")
	itself := &btf.Array{Nelems: 1}
	itself.Type = itself
	f(bankOf("bank:cpu", itself, counter...), "u64")
}

func TestAProbeIsWhole(t *testing.T) {
	f := func(want string, change func(*Object)) {
		t.Helper()
		o := parseFile(t, "rungs")
		change(o)
		if err := o.check(); !errors.Is(err, ErrObject) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	f(`needs sampler "nobody", which no metric has`, func(o *Object) { o.hooks[0].needs = []string{"nobody", "function"} })
	f(`no program has NEEDS("function")`, func(o *Object) { o.hooks = o.hooks[1:] })
	f("no programs", func(o *Object) { o.hooks = nil })
	f("metric function_calls is declared twice", func(o *Object) { o.banks = append(o.banks, o.banks[0]) })
	f("metric name", func(o *Object) { o.banks[0].members[0].desc.Name = "Upper" })
}

// FuzzParse: an ELF from anybody is a probe or an error, and nothing worse.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"rename", "rungs", "hist"} {
		elf, err := os.ReadFile("testdata/" + name + ".bpf.o")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(elf)
	}
	f.Fuzz(func(t *testing.T, elf []byte) {
		o, err := Parse("fuzz", bytes.NewReader(elf))
		if err != nil {
			if !errors.Is(err, ErrObject) || !strings.HasPrefix(err.Error(), "probe fuzz: ") {
				t.Fatalf("error %v does not say whose", err)
			}
			return
		}
		for _, b := range o.banks {
			for _, m := range b.members {
				if m.offset < 0 || m.offset%8 != 0 || m.offset+8*m.span > b.stride || m.words != len(m.combos)*m.desc.Words() {
					t.Fatalf("%s: words %d from %d on, of %d bytes", m.desc.Name, m.words, m.offset, b.stride)
				}
			}
		}
	})
}
