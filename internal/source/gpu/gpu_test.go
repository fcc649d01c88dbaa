// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"errors"
	"math"
	"strings"
	"testing"

	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// says is what a source says, by name and label values.
func says(t testing.TB, s source.Source) map[string]float64 {
	t.Helper()
	var f metric.Frame
	if err := s.Read(&f); err != nil {
		t.Fatal(err)
	}
	m := map[string]float64{}
	for _, s := range f.Schema.Series {
		m[strings.Join(append([]string{s.Desc.Name}, s.Values...), "|")] = s.Desc.Value(f.Values[s.Off])
	}
	return m
}

// same compares all that is said.
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
	for _, s := range Samplers() {
		names := map[string]bool{}
		for _, d := range s.Descs {
			if err := d.Validate(); err != nil || d.Sampler != s.Name || names[d.Name] {
				t.Errorf("metric %s of %s: %v", d.Name, d.Sampler, err)
			}
			names[d.Name] = true
		}
	}
	for r, e := range newTable("x").of {
		if e.desc == nil {
			t.Errorf("reading %d is of no metric", r)
		}
	}
}

// TestAMachineWithout opens both where there is neither.
func TestAMachineWithout(t *testing.T) {
	root := t.TempDir()
	_, nvidia := openNVIDIA(root, newTable("gpu_nvidia"))
	_, amd := openAMD(root, newTable("gpu_amd"))
	for _, err := range []error{nvidia, amd} {
		if !errors.Is(err, source.ErrUnsupported) || len(err.Error()) < 40 {
			t.Errorf("%v, want ErrUnsupported with a reason", err)
		}
	}
	write(t, root, "sys/bus/pci/devices/0000:65:00.0/vendor", "0x10de")
	write(t, root, "sys/bus/pci/devices/0000:65:00.0/class", "0x030200")
	if _, err := openNVIDIA(root, newTable("gpu_nvidia")); !errors.Is(err, source.ErrUnsupported) || strings.Contains(err.Error(), "no PCI device") {
		t.Errorf("a GPU without a library: %v", err)
	}
}

func allocatesNothing(t *testing.T, s source.Source) {
	t.Helper()
	var f metric.Frame
	for range 2 { // GPM says something from the second read on
		if err := s.Read(&f); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		if err := s.Read(&f); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations in a read", n)
	}
}
