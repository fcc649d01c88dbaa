// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

// bankSpec is a map whose value struct holds metrics.
type bankSpec struct {
	name    string
	domain  string   // whose things have a value each; empty: the CPUs
	keys    []string // labels of a thing
	last    string   // of a bank of pairs: what the last rank is called
	stride  int      // bytes from one value to the next
	members []member
}

// member is one metric of a bank: words from byte offset on, in the order of
// combos, each combo one series.
type member struct {
	desc   *metric.Desc
	offset int
	words  int        // in a frame
	span   int        // in the bank: each histogram has one more, of what was touched
	keys   []string   // of its own labels, outermost first
	combos [][]string // values of keys, in memory order
	owner  []string   // keys of the bank's own labels: a CPU's, a thing's
	perCPU bool
	lost   bool
	weight bool  // what it counts makes a thing heavy
	pairs  bool  // of two things
	shape  []int // dimensions that its labels and kind make
	since  int64 // its series start no earlier; Unix nanoseconds
}

// Limits of one metric of a probe, far above what a probe needs: labels
// multiply, and a hostile object must not take the reader's memory.
const (
	maxCombos = 1 << 12
	maxWords  = 1 << 20
)

// parseBank reads the bank that a map is, or nil when it is none.
func parseBank(m *ebpf.MapSpec) (*bankSpec, error) {
	b := &bankSpec{name: m.Name}
	bank := false
	for _, tag := range m.Tags {
		is, err := b.tag(tag)
		if err != nil {
			return nil, err
		}
		bank = bank || is
	}
	if !bank {
		return nil, nil
	}
	value, ok := btf.UnderlyingType(m.Value).(*btf.Struct)
	if !ok || m.Type != ebpf.Array || m.Flags&unix.BPF_F_MMAPABLE == 0 {
		return nil, errors.New("a bank is an array map with BPF_F_MMAPABLE and a struct as value")
	}
	if b.domain != "" && b.last == "" && !touchable(value) {
		return nil, errors.New("the value of a domain's bank begins with TOUCHED (slots.bpf.h)")
	}
	b.stride = (int(m.ValueSize) + 7) &^ 7 // as kernel/bpf/arraymap.c rounds it
	for _, f := range value.Members {
		if len(f.Tags) == 0 {
			continue
		}
		e, err := b.parseMember(f)
		if err == nil && e.offset+8*e.span > b.stride {
			err = fmt.Errorf("it ends behind the %d bytes of the value", m.ValueSize)
		}
		if err != nil {
			return nil, fmt.Errorf("member %s: %w", f.Name, err)
		}
		b.members = append(b.members, e)
	}
	if len(b.members) == 0 {
		return nil, errors.New("a bank without a metric")
	}
	return b, nil
}

// touchable tells whether the first member is the word that look-ups set.
func touchable(value *btf.Struct) bool {
	if len(value.Members) == 0 {
		return false
	}
	first := value.Members[0]
	word, ok := btf.UnderlyingType(first.Type).(*btf.Int)
	return first.Name == "touched" && ok && word.Size == 8 && first.Offset == 0 && len(first.Tags) == 0
}

var domainPattern = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

// tag applies one tag of a map, and tells whether it makes a bank of it.
func (b *bankSpec) tag(tag string) (bank bool, err error) {
	if tag == "size:cpus" || tag == "bank:cpu" {
		return tag == "bank:cpu", nil
	}
	if domain, ok := strings.CutPrefix(tag, "ranks:"); ok {
		return false, checkDomain(domain)
	}
	if of, ok := strings.CutPrefix(tag, "pairs:"); ok {
		parts := strings.Split(of, "=")
		if len(parts) != 3 || strings.Count(parts[1], ",") != 1 || parts[2] == "" {
			return false, fmt.Errorf("unknown tag %q; want pairs:DOMAIN=FIRST,SECOND=LAST", tag)
		}
		b.domain, b.keys, b.last = parts[0], strings.Split(parts[1], ","), parts[2]
		return true, checkDomain(b.domain)
	}
	of, ok := strings.CutPrefix(tag, "bank:")
	domain, keys, labelled := strings.Cut(of, "=")
	if !ok || !labelled || keys == "" || !domainPattern.MatchString(domain) {
		return false, fmt.Errorf("unknown tag %q; want bank:cpu, bank:DOMAIN=KEY,... or size:cpus", tag)
	}
	b.domain, b.keys = domain, strings.Split(keys, ",")
	return true, nil
}

func checkDomain(name string) error {
	if !domainPattern.MatchString(name) {
		return fmt.Errorf("%q is no name of a domain", name)
	}
	return nil
}

func (b *bankSpec) parseMember(f btf.Member) (member, error) {
	e := member{desc: &metric.Desc{}, offset: int(f.Offset.Bytes()), combos: [][]string{{}}}
	dims, word := dimensions(f.Type)
	if i, ok := word.(*btf.Int); !ok || i.Size != 8 || i.Encoding != btf.Unsigned || f.Offset%64 != 0 || f.BitfieldSize != 0 {
		return e, errors.New("a metric is made of aligned u64 words")
	}
	for _, tag := range f.Tags {
		key, value, _ := strings.Cut(tag, ":")
		if err := e.tag(key, value); err != nil {
			return e, err
		}
	}
	if e.desc.Name == "" || e.desc.Kind == 0 || e.desc.Sampler == "" {
		return e, errors.New("tags without metric, kind or sampler")
	}
	if b.domain != "" && (e.perCPU || e.lost) {
		return e, errors.New("per:cpu and lost are for banks of CPUs")
	}
	e.owner = b.keys
	if b.last != "" {
		if len(e.keys) > 0 || e.desc.Kind != metric.Counter {
			return e, errors.New("a bank of pairs has counters without labels of their own")
		}
		e.shape, e.pairs = []int{maxRanks, maxRanks}, true
	}
	if e.perCPU {
		e.owner = []string{"id"}
	}
	e.desc.Keys = slices.Concat(e.keys, e.owner)
	slices.Sort(e.desc.Keys)
	return e, e.checkDimensions(dims)
}

// tag applies one tag. Labels come in the order of the source.
func (e *member) tag(key, value string) error {
	d := e.desc
	switch key {
	case "metric":
		d.Name = value
	case "sampler":
		d.Sampler = value
	case "unit":
		d.Unit = metric.Unit(value)
	case "help":
		d.Help = value
	case "lost":
		e.lost = true
	case "weight":
		e.weight = true
	case "per":
		if value != "cpu" {
			return fmt.Errorf("per:%s; only per:cpu is known", value)
		}
		e.perCPU = true
	case "kind":
		return e.kind(value)
	case "label":
		return e.label(value)
	default:
		return fmt.Errorf("unknown tag %q", key)
	}
	return nil
}

func (e *member) kind(value string) error {
	if value == "counter" {
		e.desc.Kind = metric.Counter
		return nil
	}
	power, ok := strings.CutPrefix(value, "histogram/")
	n, err := strconv.ParseUint(power, 10, 8)
	if !ok || err != nil || !hist.Power(n).Valid() {
		return fmt.Errorf("kind:%s; want counter or histogram/2 to histogram/7", value)
	}
	e.desc.Kind, e.desc.Power = metric.Histogram, hist.Power(n)
	return nil
}

func (e *member) label(value string) error {
	key, values, ok := strings.Cut(value, "=")
	if !ok || key == "" || key == "id" {
		return fmt.Errorf("label:%s; want label:KEY=V1|V2, and id is for CPUs", value)
	}
	all := strings.Split(values, "|")
	if len(e.combos)*len(all) > maxCombos {
		return fmt.Errorf("label:%s: its labels make more than %d series", key, maxCombos)
	}
	if slices.Contains(all, "") || len(slices.Compact(slices.Sorted(slices.Values(all)))) < len(all) {
		return fmt.Errorf("label:%s: a value is empty or there twice", value)
	}
	e.keys = append(e.keys, key)
	if len(all) > 1 {
		e.shape = append(e.shape, len(all))
	}
	var combos [][]string
	for _, c := range e.combos {
		for _, v := range all {
			combos = append(combos, append(slices.Clone(c), v))
		}
	}
	e.combos = combos
	return nil
}

// dimensions takes the arrays off a type, as many as maxCombos can need. BTF
// may hold an array of itself.
func dimensions(t btf.Type) (dims []int, word btf.Type) {
	for {
		a, ok := btf.UnderlyingType(t).(*btf.Array)
		if !ok || len(dims) == 16 {
			return dims, btf.UnderlyingType(t)
		}
		dims = append(dims, int(a.Nelems))
		t = a.Type
	}
}

// checkDimensions holds the member's array against its labels and kind.
func (e *member) checkDimensions(dims []int) error {
	want := e.shape
	if e.desc.Kind == metric.Histogram {
		want = append(slices.Clone(want), e.desc.Words()+1)
	}
	if !slices.Equal(dims, want) {
		return fmt.Errorf("its dimensions are %v; its labels and kind make %v", dims, want)
	}
	if e.words = len(e.combos) * e.desc.Words(); e.pairs {
		e.words = pairs
	}
	if e.span = e.words; e.desc.Kind == metric.Histogram {
		e.span += len(e.combos)
	}
	if e.words > maxWords {
		return fmt.Errorf("it has %d words; at most %d are read", e.words, maxWords)
	}
	return nil
}

// values are the label values in the order of the description's keys, with
// those of the bank's own labels; none: they are all Other.
func (e *member) values(combo, own []string) []string {
	values := make([]string, len(e.desc.Keys))
	for i, key := range e.desc.Keys {
		if at := slices.Index(e.keys, key); at >= 0 {
			values[i] = combo[at]
		} else if at := slices.Index(e.owner, key); at < len(own) {
			values[i] = own[at]
		} else {
			values[i] = Other
		}
	}
	return values
}
