// SPDX-License-Identifier: Apache-2.0

//go:build nvml

package gpu

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// loadable tells that this build can load a shared library. It needs the
// system's C library for that, so it is not the static build.
const loadable = true

// load loads NVML.
func load() (*library, error) {
	lib, err := purego.Dlopen("libnvidia-ml.so.1", purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load NVML: %w", err)
	}
	f := func(names ...string) uintptr {
		for _, name := range names {
			if at, err := purego.Dlsym(lib, name); err == nil {
				return at
			}
		}
		return 0
	}
	return &library{
		start: none(f("nvmlInit_v2")), stop: none(f("nvmlShutdown")),
		count: func(n *uint32) result { return call(f("nvmlDeviceGetCount_v2"), uintptr(unsafe.Pointer(n))) },
		device: func(i uint32, d *handle) result {
			return call(f("nvmlDeviceGetHandleByIndex_v2"), uintptr(i), uintptr(unsafe.Pointer(d)))
		},
		driverVersion: func(text *byte, size uint32) result {
			return call(f("nvmlSystemGetDriverVersion"), uintptr(unsafe.Pointer(text)), uintptr(size))
		},
		name: words(f("nvmlDeviceGetName")), uuid: words(f("nvmlDeviceGetUUID")),
		pci:    one[pciInfo](f("nvmlDeviceGetPciInfo_v3")),
		memory: one[memoryInfo](f("nvmlDeviceGetMemoryInfo")), utilization: one[utilizationRates](f("nvmlDeviceGetUtilizationRates")),
		encoder: two(f("nvmlDeviceGetEncoderUtilization")), decoder: two(f("nvmlDeviceGetDecoderUtilization")),
		temperature: chosen(f("nvmlDeviceGetTemperature")), clock: chosen(f("nvmlDeviceGetClockInfo")), pcieThroughput: chosen(f("nvmlDeviceGetPcieThroughput")),
		power: one[uint32](f("nvmlDeviceGetPowerUsage")), powerLimit: one[uint32](f("nvmlDeviceGetEnforcedPowerLimit")),
		energy: one[uint64](f("nvmlDeviceGetTotalEnergyConsumption")), fan: one[uint32](f("nvmlDeviceGetFanSpeed")),
		pcieGeneration: one[uint32](f("nvmlDeviceGetCurrPcieLinkGeneration")), pcieWidth: one[uint32](f("nvmlDeviceGetCurrPcieLinkWidth")),
		pcieReplays: one[uint32](f("nvmlDeviceGetPcieReplayCounter")),
		processes:   list(f("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses")),
		eccMode:     two(f("nvmlDeviceGetEccMode")), eccErrors: totals(f("nvmlDeviceGetTotalEccErrors")),
		retired: pages(f("nvmlDeviceGetRetiredPages")), retiredPending: one[uint32](f("nvmlDeviceGetRetiredPagesPendingStatus")),
		remapped:       four(f("nvmlDeviceGetRemappedRows")),
		clockReasons:   one[uint64](f("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")),
		profileSupport: one[profileSupport](f("nvmlGpmQueryDeviceSupport")),
		profileAlloc:   func(s *sample) result { return call(f("nvmlGpmSampleAlloc"), uintptr(unsafe.Pointer(s))) },
		profileFree:    func(s sample) result { return call(f("nvmlGpmSampleFree"), uintptr(s)) },
		profileTake:    taking(f("nvmlGpmSampleGet")), profileGet: query(f("nvmlGpmMetricsGet")),
	}, nil
}

// call calls the function at an address; 0 is one the library has not.
//
//go:uintptrescapes
func call(at uintptr, args ...uintptr) result {
	if at == 0 {
		return functionNotFound
	}
	r, _, _ := purego.SyscallN(at, args...)
	return result(uint32(r))
}

// The shapes of NVML's functions.

func none(at uintptr) func() result { return func() result { return call(at) } }

func one[T any](at uintptr) func(handle, *T) result {
	return func(d handle, v *T) result { return call(at, uintptr(d), uintptr(unsafe.Pointer(v))) }
}

func two(at uintptr) func(handle, *uint32, *uint32) result {
	return func(d handle, a, b *uint32) result {
		return call(at, uintptr(d), uintptr(unsafe.Pointer(a)), uintptr(unsafe.Pointer(b)))
	}
}

func four(at uintptr) func(handle, *uint32, *uint32, *uint32, *uint32) result {
	return func(d handle, a, b, c, e *uint32) result {
		return call(at, uintptr(d), uintptr(unsafe.Pointer(a)), uintptr(unsafe.Pointer(b)), uintptr(unsafe.Pointer(c)), uintptr(unsafe.Pointer(e)))
	}
}

func chosen(at uintptr) func(handle, uint32, *uint32) result {
	return func(d handle, which uint32, v *uint32) result {
		return call(at, uintptr(d), uintptr(which), uintptr(unsafe.Pointer(v)))
	}
}

func totals(at uintptr) func(handle, uint32, uint32, *uint64) result {
	return func(d handle, kind, lifetime uint32, v *uint64) result {
		return call(at, uintptr(d), uintptr(kind), uintptr(lifetime), uintptr(unsafe.Pointer(v)))
	}
}

func words(at uintptr) func(handle, *byte, uint32) result {
	return func(d handle, text *byte, size uint32) result {
		return call(at, uintptr(d), uintptr(unsafe.Pointer(text)), uintptr(size))
	}
}

func list(at uintptr) func(handle, *uint32, unsafe.Pointer) result {
	return func(d handle, n *uint32, to unsafe.Pointer) result {
		return call(at, uintptr(d), uintptr(unsafe.Pointer(n)), uintptr(to))
	}
}

func pages(at uintptr) func(handle, uint32, *uint32, unsafe.Pointer) result {
	return func(d handle, cause uint32, n *uint32, to unsafe.Pointer) result {
		return call(at, uintptr(d), uintptr(cause), uintptr(unsafe.Pointer(n)), uintptr(to))
	}
}

func taking(at uintptr) func(handle, sample) result {
	return func(d handle, s sample) result { return call(at, uintptr(d), uintptr(s)) }
}

func query(at uintptr) func(*profileQuery) result {
	return func(q *profileQuery) result { return call(at, uintptr(unsafe.Pointer(q))) }
}
