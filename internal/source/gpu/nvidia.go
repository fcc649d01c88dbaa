// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"rezolus/internal/source"
)

// nvidiaReadings are what openNVIDIA's source can have.
func nvidiaReadings() []reading {
	var all []reading
	for r := range readings {
		if r != media && r != temperatureEdge && r != temperatureJunction && r != temperatureMemory {
			all = append(all, r)
		}
	}
	return all
}

// openNVIDIA starts NVML on a machine whose /proc and /sys are below root.
func openNVIDIA(root string, t *table) (source.Source, error) {
	if !hasVendor(root, "0x10de") {
		return nil, source.Unsupported("there is no PCI device of NVIDIA's that is a GPU")
	}
	if !loadable {
		return nil, source.Unsupported("there is an NVIDIA GPU, but this build is static and cannot load libnvidia-ml.so.1: use the one built with -tags nvml")
	}
	lib, err := load()
	if err != nil {
		return nil, source.Unsupported("%v: install the NVIDIA driver", err)
	}
	return startNVIDIA(lib, t)
}

// hasVendor tells whether a PCI device of a vendor is a display controller
// (class 0x03) or a processing accelerator (0x12).
func hasVendor(root, vendor string) bool {
	devices, err := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*"))
	if err != nil {
		return false
	}
	for _, d := range devices {
		if class := text(d, "class"); text(d, "vendor") == vendor && len(class) > 4 && (class[:4] == "0x03" || class[:4] == "0x12") {
			return true
		}
	}
	return false
}

// nvidia is a GPU as NVML has it, and the memory that the library writes to.
type nvidia struct {
	*library
	handle handle

	number, other  uint32
	third, fourth  uint32
	wide           uint64
	memoryIs       memoryInfo
	rates          utilizationRates
	older, newer   sample
	profile        profileQuery
	profiled, once bool // it can be; older is there
}

// startNVIDIA finds the GPUs of a library.
func startNVIDIA(lib *library, t *table) (source.Source, error) {
	if r := lib.start(); r != success {
		return nil, source.Unsupported("start NVML: %v", r)
	}
	var n uint32
	if r := lib.count(&n); r != success {
		return nil, errors.Join(fmt.Errorf("count GPUs: %w", r), stopped(lib.stop()))
	}
	s := &gpus{name: "gpu_nvidia", table: t}
	var devices []*nvidia
	for i := range n {
		d := &nvidia{library: lib}
		if r := lib.device(i, &d.handle); r != success {
			continue // one that this container may not see, or that is lost
		}
		d.startProfile()
		devices = append(devices, d)
		s.all = append(s.all, d.describe(int(i)))
	}
	s.ask = func(i int, g *gpu) error { return devices[i].read(g) }
	s.end = func() error {
		for _, d := range devices {
			d.endProfile()
		}
		return stopped(lib.stop())
	}
	if len(s.all) == 0 {
		return nil, errors.Join(source.Unsupported("NVML shows none of %d GPUs", n), stopped(lib.stop()))
	}
	return s, nil
}

func stopped(r result) error {
	if r == success {
		return nil
	}
	return fmt.Errorf("stop NVML: %w", r)
}

// describe asks for what does not change.
func (d *nvidia) describe(index int) *gpu {
	var buf [96]byte // the longest that NVML has (NVML_DEVICE_NAME_V2_BUFFER_SIZE)
	ask := func(f func(handle, *byte, uint32) result) string {
		clear(buf[:])
		if f(d.handle, &buf[0], uint32(len(buf))) != success {
			return ""
		}
		return cString(buf[:])
	}
	driver := ask(func(_ handle, text *byte, size uint32) result { return d.driverVersion(text, size) })
	name, uuid := ask(d.name), ask(d.uuid)
	var pci pciInfo
	d.pci(d.handle, &pci)
	id := strconv.Itoa(index)
	return &gpu{id: id, vendor: "nvidia", info: []string{driver, id, name, cString(pci.busID[:]), uuid, "nvidia"}}
}

func cString(b []byte) string {
	before, _, _ := bytes.Cut(b, []byte{0})
	return string(before)
}

// read asks for all there is. What the GPU does not support is not set; lost
// is an error.
func (d *nvidia) read(g *gpu) error {
	if r := d.memory(d.handle, &d.memoryIs); r == success {
		g.integer(memoryFree, d.memoryIs.free)
		g.integer(memoryUsed, d.memoryIs.used)
	} else if r == gpuIsLost {
		return r
	}
	if d.utilization(d.handle, &d.rates) == success {
		g.float(utilization, float64(d.rates.gpu))
		g.float(memoryUtilization, float64(d.rates.memory))
	}
	d.readNumbers(g)
	d.readClocks(g)
	d.readPCIe(g)
	d.readErrors(g)
	d.readProfile(g)
	return nil
}

// readNumbers asks what is answered by one number.
func (d *nvidia) readNumbers(g *gpu) {
	if d.encoder(d.handle, &d.number, &d.other) == success {
		g.float(encoder, float64(d.number))
	}
	if d.decoder(d.handle, &d.number, &d.other) == success {
		g.float(decoder, float64(d.number))
	}
	if d.temperature(d.handle, 0, &d.number) == success { // NVML_TEMPERATURE_GPU
		g.float(temperatureGPU, float64(d.number))
	}
	if d.power(d.handle, &d.number) == success {
		g.float(powerUsage, float64(d.number))
	}
	if d.powerLimit(d.handle, &d.number) == success {
		g.float(powerLimit, float64(d.number))
	}
	if d.library.energy(d.handle, &d.wide) == success {
		g.integer(energy, d.wide)
	}
	if d.library.fan(d.handle, &d.number) == success {
		g.float(fan, float64(d.number))
	}
	// Without room for any, NVML says how many there are, as an error
	// (NVML_ERROR_INSUFFICIENT_SIZE) unless there are none.
	d.number = 0
	if r := d.library.processes(d.handle, &d.number, nil); r == success || r == 7 {
		g.integer(processes, uint64(d.number))
	}
}

// nvidiaClocks are nvmlClockType_t.
var nvidiaClocks = [...]reading{clockGraphics, clockCompute, clockMemory, clockVideo}

func (d *nvidia) readClocks(g *gpu) {
	for clock, r := range nvidiaClocks {
		if d.clock(d.handle, uint32(clock), &d.number) == success {
			g.integer(r, uint64(d.number)*1e6)
		}
	}
	if d.clockReasons(d.handle, &d.wide) == success {
		for bit := range throttleReasons {
			g.flag(throttled+reading(bit), d.wide>>bit&1 == 1)
		}
	}
}

// laneBandwidth is what a lane carries in each direction, in bytes a second,
// by generation of PCIe: transfers a second without the encoding (8 of 10 bits
// until 2.0, 128 of 130 until 5.0, 242 of 256 bytes of a flit in 6.0).
var laneBandwidth = [...]uint64{1: 250_000_000, 2: 500_000_000, 3: 8_000_000_000 * 128 / 130 / 8,
	4: 16_000_000_000 * 128 / 130 / 8, 5: 32_000_000_000 * 128 / 130 / 8, 6: 64_000_000_000 * 242 / 256 / 8}

func (d *nvidia) readPCIe(g *gpu) {
	if d.pcieGeneration(d.handle, &d.number) == success && d.pcieWidth(d.handle, &d.other) == success && int(d.number) < len(laneBandwidth) {
		g.integer(pcieBandwidth, laneBandwidth[d.number]*uint64(d.other))
	}
	for direction, r := range [...]reading{pcieTransmit, pcieReceive} { // nvmlPcieUtilCounter_t
		if d.pcieThroughput(d.handle, uint32(direction), &d.number) == success {
			g.integer(r, uint64(d.number)*1024) // NVML's KB
		}
	}
	if d.library.pcieReplays(d.handle, &d.number) == success {
		g.integer(pcieReplays, uint64(d.number))
	}
}

func (d *nvidia) readErrors(g *gpu) {
	if d.eccMode(d.handle, &d.number, &d.other) == success {
		g.flag(eccEnabled, d.number == 1)
	}
	for kind, r := range [...]reading{eccCorrected, eccUncorrected} { // nvmlMemoryErrorType_t
		if d.eccErrors(d.handle, uint32(kind), 0, &d.wide) == success { // NVML_VOLATILE_ECC
			g.integer(r, d.wide)
		}
	}
	for cause, r := range [...]reading{retiredSingle, retiredDouble} { // nvmlPageRetirementCause_t
		if d.number = 0; d.retired(d.handle, uint32(cause), &d.number, nil) == success || d.number > 0 {
			g.integer(r, uint64(d.number))
		}
	}
	if d.library.retiredPending(d.handle, &d.number) == success {
		g.flag(retiredPending, d.number == 1)
	}
	if d.remapped(d.handle, &d.number, &d.other, &d.third, &d.fourth) == success {
		g.integer(remappedCorrected, uint64(d.number))
		g.integer(remappedUncorrected, uint64(d.other))
		g.flag(remapPending, d.third == 1)
		g.flag(remapFailed, d.fourth == 1)
	}
}
