// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rezolus/internal/source"
)

func write(t testing.TB, root, path, content string) {
	t.Helper()
	at := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if target, is := strings.CutPrefix(content, "-> "); is {
		if err := os.Symlink(target, at); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.WriteFile(at, []byte(content+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// metricsOf is a gpu_metrics in which every two bytes say where they lie.
func metricsOf(format, content byte, size int) []byte {
	b := make([]byte, size)
	for i := metricsHeader; i+2 <= size; i += 2 {
		binary.LittleEndian.PutUint16(b[i:], uint16(i))
	}
	binary.LittleEndian.PutUint16(b, uint16(size))
	b[2], b[3] = format, content
	return b
}

var amdCard = map[string]string{
	"vendor": "0x1002", "device": "0x73bf", "unique_id": "1b2c3d4e5f60718a",
	"gpu_busy_percent": "37", "mem_busy_percent": "13",
	"mem_info_vram_total": "17163091968", "mem_info_vram_used": "1163091968", "pcie_replay_count": "2",
	"current_link_speed": "16.0 GT/s PCIe", "current_link_width": "16",
	"hwmon/hwmon3/temp1_label": "edge", "hwmon/hwmon3/temp1_input": "41000",
	"hwmon/hwmon3/temp2_label": "junction", "hwmon/hwmon3/temp2_input": "47500",
	"hwmon/hwmon3/power1_average": "123456000", "hwmon/hwmon3/power1_cap": "272000000",
	"hwmon/hwmon3/freq1_input": "2105000000", "hwmon/hwmon3/freq2_input": "1000000000",
	"hwmon/hwmon3/pwm1": "51", "hwmon/hwmon3/energy1_input": "5000999",
}

func openCards(t *testing.T, root string) source.Source {
	t.Helper()
	s, err := openAMD(root, newTable("gpu_amd"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestAMD(t *testing.T) {
	root := t.TempDir()
	const at = "sys/devices/pci0000:00/0000:03:00.0"
	write(t, root, "sys/class/drm/card1/device", "-> ../../../devices/pci0000:00/0000:03:00.0")
	write(t, root, "sys/class/drm/card1-DP-1/status", "connected")
	write(t, root, "sys/class/drm/card0/device/vendor", "0x8086")
	for path, content := range amdCard {
		write(t, root, at+"/"+path, content)
	}
	write(t, root, at+"/gpu_metrics", string(metricsOf(1, 3, 120)))
	s := openCards(t, root)
	want := map[string]float64{
		"gpu_info|amdgpu|1|0x73bf|0000:03:00.0|1b2c3d4e5f60718a|amd": 1,
		"gpu_utilization|1|amd": 37, "gpu_memory_utilization|1|amd": 13,
		"gpu_memory|1|used|amd": 1163091968, "gpu_memory|1|free|amd": 16e9,
		"gpu_temperature|1|edge|amd": 41, "gpu_temperature|1|junction|amd": 47.5,
		"gpu_power_usage|1|amd": 123456, "gpu_power_limit|1|amd": 272000, "gpu_energy_consumption|1|amd": 5000,
		"gpu_clock|graphics|1|amd": 2105e6, "gpu_clock|memory|1|amd": 1000e6,
		"gpu_fan_speed|1|amd": 20, "gpu_pcie_bandwidth|1|amd": 16 * 1969230769, "gpu_pcie_replays|1|amd": 2,
		// These are in gpu_metrics alone.
		"gpu_temperature|1|memory|amd": 8, "gpu_media_utilization|1|amd": 20,
	}
	same(t, says(t, s), want)
	allocatesNothing(t, s)
	// What has no number any more is not said.
	write(t, root, at+"/hwmon/hwmon3/power1_average", "")
	delete(want, "gpu_power_usage|1|amd")
	want["gpu_power_usage|1|amd"] = 22 * 1000 // gpu_metrics has it
	same(t, says(t, s), want)
}

// TestMetricsForms checks what of each form is taken, by the offsets of the
// kernel's structures.
func TestMetricsForms(t *testing.T) {
	table := newTable("x")
	for _, f := range []struct {
		format, content byte
		want            map[reading]float64
	}{
		{1, 0, map[reading]float64{temperatureEdge: 16, temperatureJunction: 18, temperatureMemory: 20, utilization: 28, memoryUtilization: 30,
			media: 32, powerUsage: 34_000, clockGraphics: 54e6, clockMemory: 58e6}},
		{1, 1, map[reading]float64{temperatureEdge: 4, temperatureJunction: 6, temperatureMemory: 8, utilization: 16, memoryUtilization: 18,
			media: 20, powerUsage: 22_000, clockGraphics: 54e6, clockMemory: 58e6}},
		{1, 4, map[reading]float64{temperatureJunction: 4, temperatureMemory: 6, powerUsage: 10_000, utilization: 12, memoryUtilization: 14,
			energy: float64((24 | 26<<16 | 28<<32 | 30<<48) / 65536 * 1000)}},
		{2, 0, map[reading]float64{temperatureEdge: 0.16}},
		{2, 4, map[reading]float64{temperatureEdge: 0.04}},
		{3, 0, map[reading]float64{temperatureEdge: 0.04, utilization: 42, media: 44}},
	} {
		var g gpu
		if !parseMetrics(metricsOf(f.format, f.content, 400), &g) {
			t.Errorf("form %d.%d is not known", f.format, f.content)
		}
		for r, has := range g.has {
			want, ok := f.want[reading(r)]
			got := table.of[r].desc.Value(g.values[r])
			// The energy's 16 lowest bits are a fraction of a joule.
			if has != ok || ok && (got < want || got > want+1e-9*want+1) {
				t.Errorf("form %d.%d: %s %s = %v, %v; want %v, %v", f.format, f.content, table.of[r].desc.Name, table.of[r].extra, got, has, want, ok)
			}
		}
	}
	for _, b := range [][]byte{nil, {1, 0, 1}, metricsOf(9, 0, 400), metricsOf(1, 9, 400), metricsOf(1, 3, 400)[:100]} {
		if parseMetrics(b, &gpu{}) {
			t.Errorf("% x... is known", b[:min(4, len(b))])
		}
	}
	var g gpu
	absent := metricsOf(1, 3, 400)
	for i := metricsHeader; i < len(absent); i++ {
		absent[i] = 0xff
	}
	if parseMetrics(absent, &g); g.has != (gpu{}).has {
		t.Error("all bits set is a number")
	}
}

func FuzzMetrics(f *testing.F) {
	for _, form := range [][2]byte{{1, 0}, {1, 3}, {1, 4}, {1, 6}, {2, 4}, {3, 0}} {
		f.Add(metricsOf(form[0], form[1], 400))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var g gpu
		known := parseMetrics(b, &g)
		if g.has != (gpu{}).has && (!known || len(b) < 6) {
			t.Errorf("%d bytes of no known form say something", len(b))
		}
	})
}
