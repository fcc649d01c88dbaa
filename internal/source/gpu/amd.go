// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"rezolus/internal/source"
)

// amdFiles are those of the driver amdgpu that hold a number
// (Documentation/gpu/amdgpu/thermal.rst, Documentation/ABI/testing/
// sysfs-class-hwmon). Each is divided by per; hwmon/* stands for the folder of
// the GPU's only sensor chip. Of several files for a reading the first that is
// there counts.
//
// pcie_bw is not among them: the driver sleeps a second in each read of it.
var amdFiles = []struct {
	reading
	path string
	per  float64
}{
	{utilization, "gpu_busy_percent", 1},
	{memoryUtilization, "mem_busy_percent", 1},
	{memoryUsed, "mem_info_vram_used", 1},
	{powerUsage, "hwmon/*/power1_average", 1000},
	{powerUsage, "hwmon/*/power1_input", 1000},
	{powerLimit, "hwmon/*/power1_cap", 1000},
	{energy, "hwmon/*/energy1_input", 1000},
	{clockGraphics, "hwmon/*/freq1_input", 1},
	{clockMemory, "hwmon/*/freq2_input", 1},
	{fan, "hwmon/*/pwm1", 2.55},
	{pcieReplays, "pcie_replay_count", 1},
}

// amdSensors are the labels of the temperatures in hwmon.
var amdSensors = map[string]reading{"edge": temperatureEdge, "junction": temperatureJunction, "mem": temperatureMemory}

// amdReadings are what openAMD's source can have.
func amdReadings() []reading {
	all := []reading{memoryFree, pcieBandwidth, media}
	for _, f := range amdFiles {
		all = append(all, f.reading)
	}
	for _, r := range amdSensors {
		all = append(all, r)
	}
	slices.Sort(all) // for the order of documents
	return slices.Compact(all)
}

// amd is a GPU as its driver shows it.
type amd struct {
	dir     string
	files   []amdFile
	total   uint64 // bytes of memory
	link    link
	metrics *source.File // nil: the driver is older than 5.9
}

type amdFile struct {
	reading
	per  float64
	file *source.File
}

// openAMD finds the GPUs of a machine whose /sys is below root.
func openAMD(root string, t *table) (source.Source, error) {
	s := &gpus{name: "gpu_amd", table: t}
	var devices []*amd
	cards, err := filepath.Glob(filepath.Join(root, "sys/class/drm/card*"))
	if err != nil {
		return nil, err
	}
	for _, card := range cards {
		number := strings.TrimPrefix(filepath.Base(card), "card")
		dir := filepath.Join(card, "device")
		// card0-DP-1 is a connector.
		if _, err := strconv.Atoi(number); err != nil || text(dir, "vendor") != "0x1002" {
			continue
		}
		d := openCard(dir)
		devices = append(devices, d)
		s.all = append(s.all, d.describe(number))
	}
	if len(devices) == 0 {
		return nil, source.Unsupported("no card of AMD's (vendor 0x1002) in /sys/class/drm: load amdgpu if there is one")
	}
	s.ask = func(i int, g *gpu) error { return devices[i].read(g) }
	s.end = func() error {
		for _, d := range devices {
			d.close()
		}
		return nil
	}
	return s, nil
}

func openCard(dir string) *amd {
	d := &amd{dir: dir}
	have := map[reading]bool{}
	add := func(r reading, path string, per float64) {
		// A file that is there may still have nothing to say, of APUs and
		// of GPUs in their sleep. It is then tried again at each read.
		if file, err := source.OpenFile(path); err == nil && !have[r] {
			d.files, have[r] = append(d.files, amdFile{r, per, file}), true
		} else if err == nil {
			file.Close()
		}
	}
	for _, f := range amdFiles {
		if paths, err := filepath.Glob(filepath.Join(dir, f.path)); err == nil && len(paths) > 0 {
			add(f.reading, paths[0], f.per)
		}
	}
	labels, err := filepath.Glob(filepath.Join(dir, "hwmon/*/temp*_label"))
	if err == nil {
		for _, label := range labels {
			if r, ok := amdSensors[text(label)]; ok {
				add(r, strings.TrimSuffix(label, "_label")+"_input", 1000)
			}
		}
	}
	d.total, _ = strconv.ParseUint(text(dir, "mem_info_vram_total"), 10, 64)
	d.link = link{opened(dir, "current_link_speed"), opened(dir, "current_link_width")}
	d.metrics = opened(dir, "gpu_metrics")
	return d
}

// opened is a file that may not be there: nil.
func opened(dir, name string) *source.File {
	file, err := source.OpenFile(filepath.Join(dir, name))
	if err != nil {
		return nil
	}
	return file
}

// describe finds what does not change. The driver knows names of chips, not of
// products, where the firmware has none (product_name).
func (d *amd) describe(number string) *gpu {
	pci := ""
	if target, err := filepath.EvalSymlinks(d.dir); err == nil {
		pci = filepath.Base(target)
	}
	name := text(d.dir, "product_name")
	if name == "" {
		name = text(d.dir, "device") // of the PCI device: 0x74a1
	}
	return &gpu{id: number, vendor: "amd", info: []string{"amdgpu", number, name, pci, text(d.dir, "unique_id"), "amd"}}
}

// read reads the files. gpu_metrics has much of it too, and is asked for what
// the files do not say.
func (d *amd) read(g *gpu) (failed error) {
	for _, f := range d.files {
		b, err := f.file.Read()
		if err != nil {
			failed = err
			continue
		}
		n, rest, ok := source.Number(b)
		if !ok || len(rest) > 1 {
			continue
		}
		if f.reading == memoryUsed && n <= d.total {
			g.integer(memoryFree, d.total-n)
		}
		g.scaled(f.reading, float64(n), f.per, n)
	}
	if bandwidth, ok := d.link.bandwidth(); ok {
		g.integer(pcieBandwidth, bandwidth)
	}
	if d.metrics != nil {
		if b, err := d.metrics.Read(); err == nil {
			parseMetrics(b, g)
		}
	}
	return failed
}

// scaled takes over a value as the reading's metric has it: floats are divided
// as such, integers to the integer below.
func (g *gpu) scaled(r reading, value, per float64, exact uint64) {
	switch r {
	case memoryUsed, clockGraphics, clockMemory, pcieReplays:
		g.integer(r, exact)
	case energy:
		g.integer(r, uint64(value/per))
	default:
		g.float(r, value/per)
	}
}

func (d *amd) close() {
	for _, f := range d.files {
		f.file.Close()
	}
	for _, file := range []*source.File{d.link.speed, d.link.width, d.metrics} {
		if file != nil {
			file.Close()
		}
	}
}

// link is what the PCIe link is set to now (Documentation/ABI/testing/
// sysfs-bus-pci): "16.0 GT/s PCIe" and a number of lanes.
type link struct{ speed, width *source.File }

// speeds are those of each generation of PCIe.
var speeds = [...]string{1: "2.5 ", 2: "5.0 ", 3: "8.0 ", 4: "16.0 ", 5: "32.0 ", 6: "64.0 "}

// bandwidth is what the link carries.
func (l link) bandwidth() (uint64, bool) {
	if l.speed == nil || l.width == nil {
		return 0, false
	}
	width, err := l.width.Read()
	if err != nil {
		return 0, false
	}
	lanes, _, ok := source.Number(width)
	speed, err := l.speed.Read()
	for generation := 1; ok && err == nil && generation < len(speeds); generation++ {
		if s := speeds[generation]; len(speed) >= len(s) && string(speed[:len(s)]) == s && lanes <= 32 {
			return laneBandwidth[generation] * lanes, true
		}
	}
	return 0, false
}

// text is the content of a small file, or "".
func text(elem ...string) string {
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
