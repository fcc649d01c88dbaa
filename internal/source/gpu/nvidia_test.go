// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// TestLayouts holds the structures against nvml.h on 64-bit machines.
func TestLayouts(t *testing.T) {
	var q profileQuery
	var m profileMetric
	var p pciInfo
	for _, l := range []struct {
		what      string
		got, want uintptr
	}{
		{"nvmlMemory_t", unsafe.Sizeof(memoryInfo{}), 24}, {"free", unsafe.Offsetof(memoryInfo{}.free), 8}, {"used", unsafe.Offsetof(memoryInfo{}.used), 16},
		{"nvmlUtilization_t", unsafe.Sizeof(utilizationRates{}), 8}, {"memory", unsafe.Offsetof(utilizationRates{}.memory), 4},
		{"nvmlPciInfo_t", unsafe.Sizeof(p), 68}, {"busId", unsafe.Offsetof(p.busID), 36},
		{"nvmlGpmSupport_t", unsafe.Sizeof(profileSupport{}), 8},
		{"nvmlGpmMetric_t", unsafe.Sizeof(m), 40}, {"nvmlReturn", unsafe.Offsetof(m.result), 4}, {"value", unsafe.Offsetof(m.value), 8},
		{"sample1", unsafe.Offsetof(q.older), 8}, {"sample2", unsafe.Offsetof(q.newer), 16}, {"metrics", unsafe.Offsetof(q.metrics), 24},
	} {
		if l.got != l.want {
			t.Errorf("%s: %d, want %d", l.what, l.got, l.want)
		}
	}
	if len(profileMetrics) > len(q.metrics) {
		t.Errorf("room for %d metrics of GPM, %d are asked", len(q.metrics), len(profileMetrics))
	}
}

// unable is a library all of whose functions say functionNotFound.
func unable() *library {
	lib := &library{}
	v := reflect.ValueOf(lib).Elem()
	answer := []reflect.Value{reflect.ValueOf(functionNotFound)}
	for i := range v.NumField() {
		f := reflect.NewAt(v.Field(i).Type(), v.Field(i).Addr().UnsafePointer()).Elem()
		f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value { return answer }))
	}
	return lib
}

// bench is a library with GPUs whose every number is another one; a handle is
// a GPU's index plus one.
type bench struct {
	*library
	gpus    uint32
	samples sample
	freed   int
	stopped int
	energy  uint64
	lost    bool
}

func number(value uint32) func(handle, *uint32) result {
	return func(_ handle, to *uint32) result { *to = value; return success }
}

func newBench(gpus uint32) *bench {
	b := &bench{library: unable(), gpus: gpus, energy: 1_000_003}
	l := b.library
	l.start = func() result { return success }
	l.stop = func() result { b.stopped++; return success }
	l.count = func(n *uint32) result { *n = b.gpus; return success }
	l.device = func(i uint32, d *handle) result { *d = handle(i + 1); return success }
	l.driverVersion = func(text *byte, size uint32) result { return put(text, size, "570.1") }
	l.name = func(_ handle, text *byte, size uint32) result { return put(text, size, "NVIDIA H200") }
	l.uuid = func(d handle, text *byte, size uint32) result { return put(text, size, "GPU-"+strconv.Itoa(int(d))) }
	l.pci = func(_ handle, p *pciInfo) result { copy(p.busID[:], "00000000:65:00.0"); return success }
	l.memory = func(d handle, m *memoryInfo) result {
		if b.lost {
			return gpuIsLost
		}
		*m = memoryInfo{total: 141 << 30, free: 140 << 30, used: 1<<30 + uint64(d)}
		return success
	}
	l.utilization = func(_ handle, u *utilizationRates) result { *u = utilizationRates{37, 13}; return success }
	l.encoder = func(_ handle, v, _ *uint32) result { *v = 3; return success }
	l.decoder = func(_ handle, v, _ *uint32) result { *v = 5; return success }
	l.temperature = func(_ handle, sensor uint32, v *uint32) result { *v = 41 + sensor; return success }
	l.power, l.powerLimit = number(123_457), number(700_000)
	l.energy = func(_ handle, v *uint64) result { *v = b.energy; return success }
	l.clock = func(_ handle, clock uint32, v *uint32) result { *v = 1000 + clock; return success }
	l.pcieThroughput = func(_ handle, direction uint32, v *uint32) result { *v = 7 + direction; return success }
	l.pcieGeneration, l.pcieWidth, l.pcieReplays = number(5), number(16), number(2)
	l.processes = func(_ handle, n *uint32, _ unsafe.Pointer) result { *n = 4; return 7 }
	l.eccMode = func(_ handle, now, next *uint32) result { *now, *next = 1, 0; return success }
	l.eccErrors = func(_ handle, kind, lifetime uint32, v *uint64) result {
		*v = uint64(11 + kind + 100*lifetime)
		return success
	}
	l.remapped = func(_ handle, c, u, pending, failed *uint32) result {
		*c, *u, *pending, *failed = 1, 2, 1, 0
		return success
	}
	l.clockReasons = func(_ handle, v *uint64) result { *v = 1<<2 | 1<<6; return success }
	// What an H200 does not have.
	l.fan = func(handle, *uint32) result { return notSupported }
	l.retired = func(handle, uint32, *uint32, unsafe.Pointer) result { return notSupported }
	l.retiredPending = func(handle, *uint32) result { return notSupported }
	b.profile()
	return b
}

// profile gives the library GPM. A sample is a number; what is measured
// between two is the difference.
func (b *bench) profile() {
	taken := map[sample]float64{}
	clock := 0.
	b.profileSupport = func(_ handle, s *profileSupport) result {
		if s.version != 1 {
			return 25
		}
		s.supported = 1
		return success
	}
	b.profileAlloc = func(s *sample) result { b.samples++; *s = b.samples; taken[*s] = 0; return success }
	b.profileFree = func(sample) result { b.freed++; return success }
	b.profileTake = func(_ handle, s sample) result { clock++; taken[s] = clock; return success }
	b.profileGet = func(q *profileQuery) result {
		if q.version != 1 || taken[q.newer] <= taken[q.older] {
			return 2
		}
		for i := range q.count {
			m := &q.metrics[i]
			if m.value = float64(m.id) + 0.5; m.id == 9 {
				m.result = notSupported
			}
		}
		return success
	}
}

func put(text *byte, size uint32, s string) result {
	if int(size) <= len(s) {
		return 7
	}
	copy(unsafe.Slice(text, size), s+"\x00")
	return success
}

func started(t *testing.T, b *bench) source.Source {
	t.Helper()
	s, err := startNVIDIA(b.library, newTable("gpu_nvidia"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNVIDIA(t *testing.T) {
	b := newBench(3)
	s := started(t, b)
	want := map[string]float64{}
	for id, handle := range []string{"1", "2", "3"} {
		at := strconv.Itoa(id)
		for key, value := range map[string]float64{
			"gpu_info|570.1|ID|NVIDIA H200|00000000:65:00.0|GPU-" + handle + "|nvidia": 1,
			"gpu_memory|ID|free|nvidia": 140 << 30, "gpu_memory|ID|used|nvidia": 1<<30 + float64(id) + 1,
			"gpu_utilization|ID|nvidia": 37, "gpu_memory_utilization|ID|nvidia": 13,
			"gpu_encoder_utilization|ID|nvidia": 3, "gpu_decoder_utilization|ID|nvidia": 5,
			"gpu_temperature|ID|gpu|nvidia": 41, "gpu_power_usage|ID|nvidia": 123457, "gpu_power_limit|ID|nvidia": 700000,
			"gpu_energy_consumption|ID|nvidia": 1000003,
			"gpu_clock|graphics|ID|nvidia":     1000e6, "gpu_clock|compute|ID|nvidia": 1001e6, "gpu_clock|memory|ID|nvidia": 1002e6, "gpu_clock|video|ID|nvidia": 1003e6,
			"gpu_pcie_bandwidth|ID|nvidia": 16 * 3938461538, "gpu_pcie_throughput|transmit|ID|nvidia": 7 * 1024, "gpu_pcie_throughput|receive|ID|nvidia": 8 * 1024,
			"gpu_pcie_replays|ID|nvidia": 2, "gpu_compute_processes|ID|nvidia": 4, "gpu_ecc_enabled|ID|nvidia": 1,
			"gpu_ecc_errors|ID|corrected|nvidia": 11, "gpu_ecc_errors|ID|uncorrected|nvidia": 12,
			"gpu_remapped_rows|corrected|ID|nvidia": 1, "gpu_remapped_rows|uncorrected|ID|nvidia": 2,
			"gpu_row_remap_pending|ID|nvidia": 1, "gpu_row_remap_failed|ID|nvidia": 0,
		} {
			want[strings.Replace(key, "ID", at, 1)] = value
		}
		for bit, reason := range throttleReasons {
			want["gpu_throttle_reason|"+at+"|"+reason+"|nvidia"] = float64(uint64(1<<2|1<<6) >> bit & 1)
		}
	}
	same(t, says(t, s), want)
	// GPM measures from the second read on; one pipe is not supported.
	for id := range 3 {
		at := strconv.Itoa(id)
		for key, value := range map[string]float64{
			"gpu_sm_utilization|ID|nvidia": 2.5, "gpu_sm_occupancy|ID|nvidia": 3.5, "gpu_dram_bandwidth_utilization|ID|nvidia": 10.5,
			"gpu_tensor_utilization|ID|any|nvidia": 5.5, "gpu_tensor_utilization|ID|hmma|nvidia": 7.5, "gpu_tensor_utilization|ID|dfma|nvidia": 6.5,
			"gpu_pipe_utilization|ID|fp64|nvidia": 11.5, "gpu_pipe_utilization|ID|fp32|nvidia": 12.5, "gpu_pipe_utilization|ID|fp16|nvidia": 13.5,
			"gpu_pipe_utilization|ID|integer|nvidia":  4.5,
			"gpu_nvlink_throughput|receive|ID|nvidia": 60.5 * (1 << 20), "gpu_nvlink_throughput|transmit|ID|nvidia": 61.5 * (1 << 20),
		} {
			want[strings.Replace(key, "ID", at, 1)] = value
		}
	}
	for range 3 {
		same(t, says(t, s), want)
	}
	allocatesNothing(t, s)
	if err := s.Close(); err != nil || b.stopped != 1 || b.freed != 6 {
		t.Errorf("close: %v; stopped %d times, %d samples freed", err, b.stopped, b.freed)
	}
}

// TestWhatIsNotSupportedIsAbsent has a GPU that knows its memory alone.
func TestWhatIsNotSupportedIsAbsent(t *testing.T) {
	b := newBench(1)
	memory := b.memory
	start, count, device, stop := b.start, b.count, b.device, b.stop
	*b.library = *unable()
	b.start, b.count, b.device, b.stop, b.memory = start, count, device, stop, memory
	s := started(t, b)
	same(t, says(t, s), map[string]float64{"gpu_info||0||||nvidia": 1, "gpu_memory|0|free|nvidia": 140 << 30, "gpu_memory|0|used|nvidia": 1<<30 + 1})
	b.lost = true
	if err := s.Read(&metric.Frame{}); !errors.Is(err, gpuIsLost) || !strings.Contains(err.Error(), "bus") {
		t.Errorf("the only GPU is lost: %v", err)
	}
}

func TestEnergyThatFallsBeginsAnew(t *testing.T) {
	b := newBench(1)
	s := started(t, b)
	start := func() int64 {
		t.Helper()
		says(t, s)
		for _, e := range s.(*gpus).schema.Series {
			if e.Desc.Name == "gpu_energy_consumption" {
				return e.Start
			}
		}
		t.Fatal("no energy")
		return 0
	}
	if at := start(); at != host.BootTime() {
		t.Errorf("began at %d, want at boot", at)
	}
	before := host.Wall()
	if b.energy = 5; start() < before {
		t.Error("the energy fell, and began at boot")
	}
}

func TestLibrariesThatDoNotStart(t *testing.T) {
	for _, lib := range []*library{unable(), newBench(0).library} {
		if _, err := startNVIDIA(lib, newTable("gpu_nvidia")); !errors.Is(err, source.ErrUnsupported) {
			t.Errorf("%v, want %v", err, source.ErrUnsupported)
		}
	}
	b := newBench(1)
	b.count = func(*uint32) result { return 18 }
	if _, err := startNVIDIA(b.library, newTable("gpu_nvidia")); err == nil || !strings.Contains(err.Error(), "different versions") || b.stopped != 1 {
		t.Errorf("%v, stopped %d times", err, b.stopped)
	}
}

// BenchmarkRead is what the agent adds to what the library takes.
func BenchmarkRead(b *testing.B) {
	s, err := startNVIDIA(newBench(8).library, newTable("gpu_nvidia"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var f metric.Frame
	for b.Loop() {
		if err := s.Read(&f); err != nil {
			b.Fatal(err)
		}
	}
}
