// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// fake is a machine that a test writes: /sys and /proc below root.
type fake struct {
	t    testing.TB
	root string
}

func newFake(t testing.TB, files map[string]string) *fake {
	f := &fake{t, t.TempDir()}
	for path, content := range files {
		f.write(path, content)
	}
	return f
}

func (f *fake) write(path, content string) {
	f.t.Helper()
	at := filepath.Join(f.root, path)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if target, is := strings.CutPrefix(content, "-> "); is {
		if err := os.Symlink(target, at); err != nil {
			f.t.Fatal(err)
		}
		return
	}
	if err := os.WriteFile(at, []byte(content+"\n"), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fake) remove(path string) {
	f.t.Helper()
	if err := os.RemoveAll(filepath.Join(f.root, path)); err != nil {
		f.t.Fatal(err)
	}
}

// open opens a sampler of the machine.
func (f *fake) open(name string) source.Source {
	f.t.Helper()
	s, err := sampler(f.t, f.root, name).Open()
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { s.Close() })
	return s
}

func sampler(t testing.TB, root, name string) source.Sampler {
	t.Helper()
	for _, s := range samplers(root) {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no sampler %s", name)
	return source.Sampler{}
}

// read is what a source says, by name and labels.
func read(t testing.TB, s source.Source) map[string]float64 {
	t.Helper()
	var f metric.Frame
	if err := s.Read(&f); err != nil {
		t.Fatal(err)
	}
	m := map[string]float64{}
	for _, s := range f.Schema.Series {
		m[strings.Join(append([]string{s.Desc.Name}, s.Values...), " ")] = s.Desc.Value(f.Values[s.Off])
	}
	return m
}

// same compares all that a source says.
func same(t testing.TB, got, want map[string]float64) {
	t.Helper()
	for key, value := range want {
		if g, ok := got[key]; !ok || math.Abs(g-value) > 1e-9*math.Abs(value) {
			t.Errorf("%s = %v, %v; want %v", key, g, ok, value)
		}
	}
	for key, value := range got {
		if _, ok := want[key]; !ok {
			t.Errorf("%s = %v is there too", key, value)
		}
	}
}

func TestSamplersAreDescribed(t *testing.T) {
	names := map[string]bool{}
	for _, s := range Samplers() {
		if names[s.Name] || s.Reads == "" || s.Needs == "" || len(s.Descs) == 0 {
			t.Errorf("sampler %+v", s)
		}
		names[s.Name] = true
		for _, d := range s.Descs {
			if err := d.Validate(); err != nil || d.Sampler != s.Name {
				t.Errorf("metric %s of %s, in %s: %v", d.Name, d.Sampler, s.Name, err)
			}
		}
	}
}

// TestAMachineWithoutIsUnsupported opens every sampler where there is nothing.
func TestAMachineWithoutIsUnsupported(t *testing.T) {
	for _, s := range samplers(t.TempDir()) {
		if _, err := s.Open(); !errors.Is(err, source.ErrUnsupported) || len(err.Error()) < 40 {
			t.Errorf("%s: %v, want ErrUnsupported with a reason", s.Name, err)
		}
	}
}

func TestThisMachine(t *testing.T) {
	for _, s := range Samplers() {
		opened, err := s.Open()
		if errors.Is(err, source.ErrUnsupported) {
			t.Logf("%s: %v", s.Name, err)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		got := read(t, opened)
		t.Logf("%s: %d series", s.Name, len(got))
		if len(got) == 0 {
			t.Errorf("%s is open and says nothing", s.Name)
		}
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestFrequencyOfThisMachine compares with the kernel's own words, read by
// other means. A nominal rate does not change; a measured one is within the
// bounds of any CPU.
func TestFrequencyOfThisMachine(t *testing.T) {
	s, err := sampler(t, "/", "cpufreq").Open()
	if err != nil {
		if !errors.Is(err, source.ErrUnsupported) {
			t.Fatal(err)
		}
		if b, _ := os.ReadFile("/proc/cpuinfo"); strings.Contains(string(b), "cpu MHz") {
			t.Errorf("%v, and /proc/cpuinfo has it", err)
		}
		return
	}
	defer s.Close()
	var rates int
	for key, rate := range read(t, s) {
		if strings.HasPrefix(key, "cpu_frequency ") {
			if rates++; rate < 1e8 || rate > 1e10 {
				t.Errorf("%s = %v hertz", key, rate)
			}
		}
	}
	if want := len(host.Online()); rates != want {
		t.Errorf("%d rates of %d CPUs", rates, want)
	}
	if _, is := s.(*info); !is {
		return
	}
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	got, cpu := read(t, s), -1
	for line := range strings.Lines(string(b)) {
		if key, value, _ := strings.Cut(line, ":"); strings.HasPrefix(key, "cpu MHz") {
			cpu++
			mhz, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			key := "cpu_frequency " + strconv.Itoa(host.Online()[cpu]) + " cpuinfo"
			if err != nil || math.Abs(got[key]-mhz*1e6) > mhz*1e6/2 {
				t.Errorf("%s = %v; /proc/cpuinfo says %v MHz (%v)", key, got[key], mhz, err)
			}
		}
	}
}

func TestFilesComeAndGo(t *testing.T) {
	f := newFake(t, edacFiles)
	s := f.open("edac").(*tree)
	want := len(read(t, s))
	first := s.schema
	s.next = 0
	if read(t, s); s.schema != first {
		t.Error("another schema for the same files")
	}
	f.write("sys/devices/system/edac/mc/mc1/ce_count", "7")
	f.write("sys/devices/system/edac/mc/mc1/mc_name", "other")
	if got := read(t, s); len(got) != want {
		t.Errorf("%d series before it is time to look", len(got))
	}
	s.next = 0
	if got := read(t, s); len(got) != want+1 || got["edac_errors mc1 other corrected"] != 7 || s.schema == first {
		t.Errorf("mc1 appeared, and there is %v", got)
	}
	f.remove("sys/devices/system/edac/mc/mc1")
	s.next = 0
	if got := read(t, s); len(got) != want || s.schema.Hash != first.Hash {
		t.Errorf("mc1 went, and there is %v", got)
	}
	f.remove("sys/devices/system/edac")
	s.next = 0
	if err := s.Read(&metric.Frame{}); err == nil {
		t.Error("no file is left, and a frame comes")
	}
}

func TestCountersThatFallBeginAnew(t *testing.T) {
	f := newFake(t, map[string]string{"sys/devices/system/edac/mc/mc0/ce_count": "9", "sys/devices/system/edac/mc/mc0/ue_count": "2"})
	s := f.open("edac").(*tree)
	read(t, s)
	if start := s.schema.Series[0].Start; start != host.BootTime() {
		t.Errorf("the counter began at %d, want at boot", start)
	}
	f.write("sys/devices/system/edac/mc/mc0/ce_count", "1")
	before := host.Wall()
	got := read(t, s)
	if got["edac_errors mc0  corrected"] != 1 || s.schema.Series[0].Start < before || s.schema.Series[1].Start != host.BootTime() {
		t.Errorf("after a reset: %v from %+v", got, s.schema.Series)
	}
}

func TestWhatCannotBeReadIsAbsent(t *testing.T) {
	f := newFake(t, map[string]string{"sys/devices/system/edac/mc/mc0/ce_count": "9", "sys/devices/system/edac/mc/mc0/ue_count": "<unknown>"})
	s := f.open("edac")
	same(t, read(t, s), map[string]float64{"edac_errors mc0  corrected": 9})
	f.write("sys/devices/system/edac/mc/mc0/ue_count", "3")
	same(t, read(t, s), map[string]float64{"edac_errors mc0  corrected": 9, "edac_errors mc0  uncorrected": 3})
	f.write("sys/devices/system/edac/mc/mc0/ue_count", "-3")
	same(t, read(t, s), map[string]float64{"edac_errors mc0  corrected": 9})
}

func TestReadAllocatesNothing(t *testing.T) {
	f := newFake(t, hwmonFiles)
	opened := []source.Source{f.open("hwmon")}
	if c, err := openInfo("/proc/cpuinfo"); err == nil {
		defer c.Close()
		opened = append(opened, c)
	}
	for _, s := range opened {
		var frame metric.Frame
		if err := s.Read(&frame); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() {
			if err := s.Read(&frame); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations in a read", s.Name(), n)
		}
	}
}

func FuzzInteger(f *testing.F) {
	for _, seed := range []string{"0\n", "-273150\n", "9223372036854775807", "9223372036854775808", "", "-", " 1", "1 2", "<unknown>\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, ok := integer(b)
		text := strings.TrimRight(string(b), "\n ")
		want, err := strconv.ParseInt(text, 10, 64)
		if plain := err == nil && !strings.HasPrefix(text, "+") && len(strings.TrimPrefix(text, "-")) <= 19 && want != math.MinInt64; plain != ok || ok && got != want {
			t.Errorf("%q is %d, %v; strconv says %d, %v", b, got, ok, want, err)
		}
	})
}

func FuzzInfo(f *testing.F) {
	f.Add([]byte(infoText))
	f.Add([]byte("processor : 1\nprocessor : 0\ncpu MHz : 1.000\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s info
		if s.parse(b) == nil && (len(s.cpus) == 0 || len(s.cpus) != len(s.rates) || s.rebuild() != nil) {
			t.Errorf("%d CPUs with %d rates", len(s.cpus), len(s.rates))
		}
	})
}

func BenchmarkRead(b *testing.B) {
	s := newFake(b, hwmonFiles).open("hwmon")
	var f metric.Frame
	for b.Loop() {
		if err := s.Read(&f); err != nil {
			b.Fatal(err)
		}
	}
}
