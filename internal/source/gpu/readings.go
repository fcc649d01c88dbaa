// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"math"
	"slices"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// reading is a number that a GPU may tell of itself, whoever made it.
type reading int

// The readings, in the order of the series of a GPU.
const (
	utilization reading = iota
	memoryUtilization
	encoder
	decoder
	media
	memoryUsed
	memoryFree
	temperatureGPU
	temperatureEdge
	temperatureJunction
	temperatureMemory
	powerUsage
	powerLimit
	energy
	clockGraphics
	clockCompute
	clockMemory
	clockVideo
	fan
	pcieBandwidth
	pcieReceive
	pcieTransmit
	pcieReplays
	processes
	eccEnabled
	eccCorrected
	eccUncorrected
	retiredSingle
	retiredDouble
	retiredPending
	remappedCorrected
	remappedUncorrected
	remapPending
	remapFailed
	smUtilization
	smOccupancy
	dramUtilization
	tensorAny
	tensorHMMA
	tensorIMMA
	tensorDFMA
	pipeFP64
	pipeFP32
	pipeFP16
	pipeInteger
	nvlinkReceive
	nvlinkTransmit
	throttled                                             // the first of throttleReasons
	readings  = throttled + reading(len(throttleReasons)) // how many there are
)

// throttleReasons are bits of NVML's clocks event reasons
// (nvmlClocksEventReasons in nvml.h), by their number.
var throttleReasons = [...]string{"idle", "application_clocks", "software_power_cap", "hardware_slowdown", "sync_boost",
	"software_thermal", "hardware_thermal", "power_brake", "display_clocks"}

// Units that have no name in package metric.
const (
	celsius        metric.Unit = "celsius"
	percent        metric.Unit = "percent"
	hertz          metric.Unit = "hertz"
	milliwatts     metric.Unit = "milliwatts"
	millijoules    metric.Unit = "millijoules"
	bytesPerSecond metric.Unit = "bytes/second"
)

// gauge, ratio and counter describe a metric of GPUs with the labels of all
// and extra. Those that a vendor tells as a fraction are floats with all.
func gauge(name, help string, unit metric.Unit, extra ...string) *metric.Desc {
	return describe(metric.Desc{Name: name, Help: help, Unit: unit, Kind: metric.Gauge}, extra)
}

func ratio(name, help string, unit metric.Unit, extra ...string) *metric.Desc {
	return describe(metric.Desc{Name: name, Help: help, Unit: unit, Kind: metric.Gauge, Float: true}, extra)
}

func counter(name, help string, unit metric.Unit, extra ...string) *metric.Desc {
	return describe(metric.Desc{Name: name, Help: help, Unit: unit, Kind: metric.Counter}, extra)
}

func describe(d metric.Desc, extra []string) *metric.Desc {
	d.Keys = append([]string{"id", "vendor"}, extra...)
	slices.Sort(d.Keys)
	return &d
}

// table says for each reading what metric it is of, and the label value that
// tells it from others of the metric. It is made once for each sampler,
// because a metric names its switch.
type table struct {
	of   [readings]entry
	info *metric.Desc
}

type entry struct {
	desc  *metric.Desc
	extra string
}

func newTable(sampler string) *table {
	t := table{info: gauge("gpu_info", "1 for each GPU: what it is, in labels", metric.None, "driver", "name", "pci", "uuid")}
	t.info.Sampler = sampler
	put := func(d *metric.Desc, values map[reading]string) {
		d.Sampler = sampler
		for r, extra := range values {
			t.of[r] = entry{d, extra}
		}
	}
	one := func(r reading, d *metric.Desc) { put(d, map[reading]string{r: ""}) }
	one(utilization, ratio("gpu_utilization", "part of the time that the GPU had something to do", percent))
	one(memoryUtilization, ratio("gpu_memory_utilization", "part of the time that the GPU's memory was read or written", percent))
	one(encoder, ratio("gpu_encoder_utilization", "part of the time that the video encoder was busy", percent))
	one(decoder, ratio("gpu_decoder_utilization", "part of the time that the video decoder was busy", percent))
	one(media, ratio("gpu_media_utilization", "part of the time that the video engine, which encodes and decodes, was busy", percent))
	put(gauge("gpu_memory", "memory of the GPU by state; what its driver keeps for itself is used", metric.Bytes, "state"),
		map[reading]string{memoryUsed: "used", memoryFree: "free"})
	put(ratio("gpu_temperature", "temperature of a GPU at a sensor", celsius, "sensor"),
		map[reading]string{temperatureGPU: "gpu", temperatureEdge: "edge", temperatureJunction: "junction", temperatureMemory: "memory"})
	one(powerUsage, ratio("gpu_power_usage", "power that the GPU takes", milliwatts))
	one(powerLimit, ratio("gpu_power_limit", "power that the GPU may take", milliwatts))
	one(energy, counter("gpu_energy_consumption", "energy that the GPU used since its driver was loaded", millijoules))
	put(gauge("gpu_clock", "rate of each clock of the GPU", hertz, "clock"),
		map[reading]string{clockGraphics: "graphics", clockCompute: "compute", clockMemory: "memory", clockVideo: "video"})
	one(fan, ratio("gpu_fan_speed", "speed of the GPU's fan, of the highest it is meant for", percent))
	one(pcieBandwidth, gauge("gpu_pcie_bandwidth", "bytes that the GPU's PCIe link can carry in each direction as it is set now, encoding off, packet headers not", bytesPerSecond))
	put(gauge("gpu_pcie_throughput", "bytes that the GPU moved over PCIe in a window of 20 ms", bytesPerSecond, "direction"),
		map[reading]string{pcieReceive: "receive", pcieTransmit: "transmit"})
	one(pcieReplays, counter("gpu_pcie_replays", "packets sent again over PCIe because they were damaged", metric.None))
	one(processes, gauge("gpu_compute_processes", "processes with a compute context on the GPU", metric.None))
	t.putMemoryHealth(put, one)
	t.putProfile(put, one)
	return &t
}

// putMemoryHealth describes errors of the memory, and why a GPU is slow.
func (t *table) putMemoryHealth(put func(*metric.Desc, map[reading]string), one func(reading, *metric.Desc)) {
	one(eccEnabled, gauge("gpu_ecc_enabled", "1 while the GPU's memory is checked for errors", metric.None))
	put(counter("gpu_ecc_errors", "errors of the GPU's memory since its driver was loaded", metric.None, "type"),
		map[reading]string{eccCorrected: "corrected", eccUncorrected: "uncorrected"})
	put(gauge("gpu_retired_pages", "pages of the GPU's memory that are used no more, by the error that was the cause", metric.None, "cause"),
		map[reading]string{retiredSingle: "single_bit", retiredDouble: "double_bit"})
	one(retiredPending, gauge("gpu_retired_pages_pending", "1 while a page waits for the next start of the GPU to be retired", metric.None))
	put(gauge("gpu_remapped_rows", "rows of the GPU's memory that were replaced by spare ones, by the errors that were the cause", metric.None, "cause"),
		map[reading]string{remappedCorrected: "corrected", remappedUncorrected: "uncorrected"})
	one(remapPending, gauge("gpu_row_remap_pending", "1 while a row waits for the next reset of the GPU to be replaced", metric.None))
	one(remapFailed, gauge("gpu_row_remap_failed", "1 when a row could not be replaced", metric.None))
	reasons := map[reading]string{}
	for i, reason := range throttleReasons {
		reasons[throttled+reading(i)] = reason
	}
	put(gauge("gpu_throttle_reason", "1 while the GPU's clocks are held down for a reason", metric.None, "reason"), reasons)
}

// putProfile describes what GPM measures: means over the time since the read
// before.
func (t *table) putProfile(put func(*metric.Desc, map[reading]string), one func(reading, *metric.Desc)) {
	one(smUtilization, ratio("gpu_sm_utilization", "part of the streaming multiprocessors that were busy", percent))
	one(smOccupancy, ratio("gpu_sm_occupancy", "warps that were active, of the most there can be", percent))
	one(dramUtilization, ratio("gpu_dram_bandwidth_utilization", "bandwidth of the GPU's memory that was used", percent))
	put(ratio("gpu_tensor_utilization", "part of the time that multiprocessors did tensor operations, by pipe", percent, "pipe"),
		map[reading]string{tensorAny: "any", tensorHMMA: "hmma", tensorIMMA: "imma", tensorDFMA: "dfma"})
	put(ratio("gpu_pipe_utilization", "part of the time that multiprocessors did arithmetic other than tensors, by pipe", percent, "pipe"),
		map[reading]string{pipeFP64: "fp64", pipeFP32: "fp32", pipeFP16: "fp16", pipeInteger: "integer"})
	put(gauge("gpu_nvlink_throughput", "bytes that the GPU moved over all its NVLinks", bytesPerSecond, "direction"),
		map[reading]string{nvlinkReceive: "receive", nvlinkTransmit: "transmit"})
}

// descs are the metrics that a sampler with these readings has, each once.
func (t *table) descs(of ...reading) []*metric.Desc {
	all := []*metric.Desc{t.info}
	for _, r := range of {
		if d := t.of[r].desc; !slices.Contains(all, d) {
			all = append(all, d)
		}
	}
	return all
}

// gpu is what is known of one GPU.
type gpu struct {
	id     string
	vendor string
	info   []string // label values of gpu_info: driver, id, name, pci, uuid, vendor
	values [readings]uint64
	has    [readings]bool

	shown   [readings]bool // of the schema
	highest [readings]uint64
	start   [readings]int64
}

// integer takes over a number in the metric's unit.
func (g *gpu) integer(r reading, value uint64) { g.values[r], g.has[r] = value, true }

func (g *gpu) float(r reading, value float64) { g.integer(r, math.Float64bits(value)) }

func (g *gpu) flag(r reading, set bool) {
	if g.integer(r, 0); set {
		g.values[r] = 1
	}
}

// settle tells whether the GPU's series are others than before. A counter that
// fell (the driver was loaded anew) begins anew.
func (g *gpu) settle(t *table) (changed bool) {
	for r, has := range g.has {
		if !has || t.of[r].desc.Kind != metric.Counter {
			continue
		}
		if g.start[r] == 0 {
			g.start[r] = host.BootTime()
		} else if g.values[r] < g.highest[r] {
			g.start[r], changed = host.Wall(), true
		}
		g.highest[r] = g.values[r]
	}
	changed = changed || g.has != g.shown
	g.shown = g.has
	return changed
}

// series are those of the GPU now, in the order of the readings.
func (g *gpu) series(t *table) []metric.Series {
	all := []metric.Series{{Desc: t.info, Values: g.info}}
	for r, shown := range g.shown {
		if !shown {
			continue
		}
		d := t.of[r].desc
		values := make([]string, len(d.Keys))
		for i, key := range d.Keys {
			switch key {
			case "id":
				values[i] = g.id
			case "vendor":
				values[i] = g.vendor
			default:
				values[i] = t.of[r].extra
			}
		}
		all = append(all, metric.Series{Desc: d, Values: values, Start: g.start[r]})
	}
	return all
}

// appendValues appends the words of the series.
func (g *gpu) appendValues(to []uint64) []uint64 {
	to = append(to, 1) // gpu_info
	for r, shown := range g.shown {
		if shown {
			to = append(to, g.values[r])
		}
	}
	return to
}
