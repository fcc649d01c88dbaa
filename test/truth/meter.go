// SPDX-License-Identifier: Apache-2.0

// Package truth checks what the probes say: each test does a known amount of
// work and asserts the value of the metric, on every kernel of the matrix.
// It loads the real objects through the real loader; nothing is faked.
package truth

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"rezolus/internal/bpf"
	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source/things"
	"rezolus/probes"
	"rezolus/test/workload"
)

// meter is a running probe and what it read last.
type meter struct {
	t       testing.TB
	probe   *bpf.Probe
	things  *things.Things
	tracker *host.Cgroups
}

// machine is this machine as the loader wants it.
func machine() bpf.Host {
	return bpf.Host{Possible: host.Possible(), Online: host.Online(), Mono: host.Mono, Wall: host.Wall,
		KernelBTF: true}
}

// start loads a built-in probe with all samplers on, which must be healthy.
func start(t testing.TB, object string, h bpf.Host) *meter {
	t.Helper()
	m := load(t, object, h)
	for _, s := range m.probe.Status() {
		if s.State != bpf.Healthy {
			t.Fatalf("sampler %s is %s: %s", s.Name, s.State, s.Reason)
		}
	}
	m.best()
	return m
}

// load loads a built-in probe with these samplers on, or all, and tracks what
// it tells apart.
func load(t testing.TB, object string, h bpf.Host, samplers ...string) *meter {
	t.Helper()
	m := &meter{t: t}
	mode := host.CgroupMode()
	var err error
	if m.tracker, err = host.TrackCgroups(host.CgroupOptions{Mount: mode.Mount}); err != nil {
		t.Fatal(err)
	}
	o := parse(t, object)
	if m.things, err = things.Track(things.Options{Host: h, MaxCgroups: 64, Cgroups: m.tracker}, o); err != nil {
		t.Fatal(err)
	}
	on := func(sampler string) bool { return len(samplers) == 0 || slices.Contains(samplers, sampler) }
	if m.probe, err = o.Load(bpf.Options{Host: h, Slots: m.things.Slots, Enabled: on}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, err := range []error{m.tracker.Close(), m.probe.Close(), m.things.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return m
}

func parse(t testing.TB, object string) *bpf.Object {
	t.Helper()
	f, err := probes.Objects.Open(object + ".bpf.o")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o, err := bpf.Parse(object[strings.LastIndex(object, "/")+1:], f.(io.ReaderAt))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// reading is everything the sources said at one moment, by name and labels.
type reading map[string][]uint64

// key is a series' name in a reading: name{key=value,...}.
func key(s *metric.Series) string {
	var b strings.Builder
	b.WriteString(s.Desc.Name)
	for i, k := range s.Desc.Keys {
		b.WriteString([]string{"{", ","}[min(i, 1)] + k + "=" + s.Values[i])
	}
	if len(s.Desc.Keys) > 0 {
		b.WriteByte('}')
	}
	return b.String()
}

// source is what the agent reads.
type source interface{ Read(*metric.Frame) error }

func read(t testing.TB, sources ...source) reading {
	t.Helper()
	r := reading{}
	for _, s := range sources {
		var f metric.Frame
		if err := s.Read(&f); err != nil {
			t.Fatal(err)
		}
		for i := range f.Schema.Series {
			e := &f.Schema.Series[i]
			r[key(e)] = f.Values[e.Off : e.Off+e.Desc.Words()]
		}
	}
	return r
}

func (m *meter) read() reading {
	var sources []source
	if s := m.probe.Source(); s != nil { // all its banks may be of domains
		sources = append(sources, s)
	}
	for _, s := range m.things.Sources() {
		sources = append(sources, s)
	}
	return read(m.t, sources...)
}

// cgroup makes a cgroup and waits until its events are told apart.
func (m *meter) cgroup(name string) *workload.Cgroup {
	m.t.Helper()
	c := workload.NewCgroup(m.t, name)
	m.await(c.Path)
	return c
}

// await waits until the events of a cgroup are told apart.
func (m *meter) await(path string) {
	m.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for series := range m.read() {
			if strings.Contains(series, "name="+path) {
				return
			}
		}
	}
	m.t.Fatalf("cgroup %s got no slot", path)
}

// since is what happened between two readings. A series that is new began at
// zero.
func (r reading) since(before reading) reading {
	d := reading{}
	for k, now := range r {
		d[k] = append([]uint64(nil), now...)
		for i, w := range before[k] {
			d[k][i] -= w
		}
	}
	return d
}

// count is the sum of a series' words; the test fails when it is missing.
func (r reading) count(t testing.TB, series string) uint64 {
	t.Helper()
	words, ok := r[series]
	if !ok {
		t.Fatalf("no series %s", series)
	}
	var n uint64
	for _, w := range words {
		n += w
	}
	return n
}

// total adds up all series of a metric.
func (r reading) total(name string) (n uint64) {
	for k, words := range r {
		if k == name || strings.HasPrefix(k, name+"{") {
			for _, w := range words {
				n += w
			}
		}
	}
	return n
}

// want asserts a value exactly.
func (r reading) want(t testing.TB, series string, want uint64) {
	t.Helper()
	if got := r.count(t, series); got != want {
		t.Errorf("%s = %d, want %d", series, got, want)
	}
}

// within asserts a value between two bounds.
func (r reading) within(t testing.TB, series string, lo, hi uint64) {
	t.Helper()
	if got := r.count(t, series); got < lo || got > hi {
		t.Errorf("%s = %d, want %d to %d", series, got, lo, hi)
	}
}
