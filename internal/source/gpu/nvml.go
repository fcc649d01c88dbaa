// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"unsafe"
)

// result is nvmlReturn_t.
type result uint32

// The results that matter here.
const (
	success          result = 0
	notSupported     result = 3
	functionNotFound result = 13
	gpuIsLost        result = 15
)

// resultNames are in words what a user may see.
var resultNames = map[result]string{
	4: "no permission", 9: "the NVIDIA driver is not loaded: run nvidia-smi as root", 15: "the GPU has fallen off the bus",
	16: "the GPU must be reset", 17: "the device files are out of reach: allow /dev/nvidia* in this container",
	18: "driver and library are of different versions: restart the machine, or load the driver anew", 999: "unknown error",
}

func (r result) Error() string {
	if name, ok := resultNames[r]; ok {
		return fmt.Sprintf("NVML: %s (%d)", name, uint32(r))
	}
	return fmt.Sprintf("NVML: error %d", uint32(r))
}

// handle is nvmlDevice_t, sample nvmlGpmSample_t: pointers into the library.
type (
	handle uintptr
	sample uintptr
)

// What follows are structures of nvml.h (API version 13; none has changed
// since it was introduced).

// memoryInfo is nvmlMemory_t.
type memoryInfo struct{ total, free, used uint64 }

// utilizationRates is nvmlUtilization_t.
type utilizationRates struct{ gpu, memory uint32 }

// pciInfo is nvmlPciInfo_t (nvmlDeviceGetPciInfo_v3).
type pciInfo struct {
	busIDLegacy                                      [16]byte
	domain, bus, device, pciDeviceID, pciSubsystemID uint32
	busID                                            [32]byte
}

// profileSupport is nvmlGpmSupport_t.
type profileSupport struct{ version, supported uint32 }

// profileMetric is nvmlGpmMetric_t.
type profileMetric struct {
	id                          uint32
	result                      result
	value                       float64
	shortName, longName, unitIs uintptr
}

// profileQuery is nvmlGpmMetricsGet_t, but for its array, which the library
// reads and writes no further than count: its length differs between versions.
type profileQuery struct {
	version, count uint32
	older, newer   sample
	metrics        [16]profileMetric
}

// The version of nvmlGpmSupport_t and nvmlGpmMetricsGet_t.
const profileVersion = 1

// library is the part of NVML that is used. What a library has not is a
// function that says functionNotFound.
type library struct {
	start, stop      func() result
	count            func(*uint32) result
	device           func(index uint32, d *handle) result
	driverVersion    func(text *byte, size uint32) result
	name, uuid       func(d handle, text *byte, size uint32) result
	pci              func(handle, *pciInfo) result
	memory           func(handle, *memoryInfo) result
	utilization      func(handle, *utilizationRates) result
	encoder, decoder func(d handle, percent, periodMicros *uint32) result
	temperature      func(d handle, sensor uint32, celsius *uint32) result
	power            func(handle, *uint32) result
	powerLimit       func(handle, *uint32) result
	energy           func(handle, *uint64) result
	clock            func(d handle, clock uint32, megahertz *uint32) result
	fan              func(handle, *uint32) result
	pcieThroughput   func(d handle, direction uint32, kilobytes *uint32) result
	pcieGeneration   func(handle, *uint32) result
	pcieWidth        func(handle, *uint32) result
	pcieReplays      func(handle, *uint32) result
	processes        func(d handle, count *uint32, infos unsafe.Pointer) result
	eccMode          func(d handle, current, pending *uint32) result
	eccErrors        func(d handle, kind, lifetime uint32, count *uint64) result
	retired          func(d handle, cause uint32, count *uint32, addresses unsafe.Pointer) result
	retiredPending   func(handle, *uint32) result
	remapped         func(d handle, corrected, uncorrected, pending, failed *uint32) result
	clockReasons     func(handle, *uint64) result
	profileSupport   func(handle, *profileSupport) result
	profileAlloc     func(*sample) result
	profileFree      func(sample) result
	profileTake      func(handle, sample) result
	profileGet       func(*profileQuery) result
}
