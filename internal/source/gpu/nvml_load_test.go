// SPDX-License-Identifier: Apache-2.0

//go:build nvml

package gpu

import (
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestRealLibrary asks the library of the machine, where somebody says that it
// has one: REZOLUS_GPU=1 go test -tags nvml ./internal/source/gpu. No machine
// that builds this has a GPU, so by default it does nothing. What the vendor's
// own program says of the same GPUs must agree.
func TestRealLibrary(t *testing.T) {
	if os.Getenv("REZOLUS_GPU") == "" {
		return
	}
	lib, err := load()
	if err != nil {
		t.Fatal(err)
	}
	s, err := startNVIDIA(lib, newTable("gpu_nvidia"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	says(t, s)
	got := says(t, s)
	for key, value := range got {
		t.Log(key, value)
	}
	program, err := exec.LookPath("nvidia-smi")
	if err != nil {
		t.Log("no nvidia-smi to compare with")
		return
	}
	// Of what changes by the second only the size is compared.
	fields := []struct {
		field, name, extra string
		times, within      float64
	}{
		{"memory.used", "gpu_memory", "used", 1 << 20, 2 << 30}, {"power.limit", "gpu_power_limit", "", 1000, 1000},
		{"temperature.gpu", "gpu_temperature", "gpu", 1, 10}, {"power.draw", "gpu_power_usage", "", 1000, 100_000},
		{"ecc.errors.corrected.volatile.total", "gpu_ecc_errors", "corrected", 1, 0},
		{"clocks.max.graphics", "", "", 0, 0}, // asked, so that a driver without it is seen
	}
	var names []string
	for _, f := range fields {
		names = append(names, f.field)
	}
	out, err := exec.Command(program, "--format=csv,noheader,nounits", "--query-gpu="+strings.Join(names, ",")).Output()
	if err != nil {
		t.Fatalf("nvidia-smi: %v", err)
	}
	for id, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		for i, text := range strings.Split(line, ", ") {
			f := fields[i]
			want, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil || f.name == "" {
				continue // [N/A]
			}
			value, ok := ofGPU(got, f.name, strconv.Itoa(id), f.extra)
			if !ok || math.Abs(value-want*f.times) > f.within {
				t.Errorf("GPU %d: %s = %v, %v; nvidia-smi says %s = %s", id, f.name, value, ok, f.field, text)
			}
		}
	}
}

// ofGPU is the value of a series, wherever its labels stand.
func ofGPU(got map[string]float64, name, id, extra string) (float64, bool) {
	for key, value := range got {
		labels := strings.Split(key, "|")
		if labels[0] != name {
			continue
		}
		has := func(want string) bool { return strings.Contains("|"+strings.Join(labels[1:], "|")+"|", "|"+want+"|") }
		if has(id) && (extra == "" || has(extra)) {
			return value, true
		}
	}
	return 0, false
}
