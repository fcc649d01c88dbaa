// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"path/filepath"
	"strconv"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/source"
)

const hertz metric.Unit = "hertz"

var (
	cpuFrequency = &metric.Desc{Name: "cpu_frequency", Help: "clock rate of a CPU as the kernel last knew it: measured where the CPU can count its cycles, else what was asked for (source cpufreq) or the nominal rate (source cpuinfo)",
		Unit: hertz, Kind: metric.Gauge, Keys: []string{"id", "source"}, Sampler: "cpufreq"}
	cpuFrequencyLimit = &metric.Desc{Name: "cpu_frequency_limit", Help: "bounds of a CPU's clock rate: of the hardware, and within them those set now (scaling)",
		Unit: hertz, Kind: metric.Gauge, Keys: []string{"bound", "id", "of"}, Sampler: "cpufreq"}
	cpuFrequencyTransitions = &metric.Desc{Name: "cpu_frequency_transitions", Help: "changes of a CPU's clock rate",
		Kind: metric.Counter, Keys: []string{"id"}, Sampler: "cpufreq"}

	cpuIdleTime = &metric.Desc{Name: "cpu_idle_time", Help: "time a CPU spent in each idle state; that of a sleep is added at its end",
		Unit: metric.Nanoseconds, Kind: metric.Counter, Keys: []string{"id", "state"}, Sampler: "cpuidle"}
	cpuIdleEntries = &metric.Desc{Name: "cpu_idle_entries", Help: "times a CPU entered each idle state",
		Kind: metric.Counter, Keys: []string{"id", "state"}, Sampler: "cpuidle"}
	cpuIdleRejected = &metric.Desc{Name: "cpu_idle_rejected", Help: "times a CPU could not enter an idle state it asked for",
		Kind: metric.Counter, Keys: []string{"id", "state"}, Sampler: "cpuidle"}

	cpuThrottle = &metric.Desc{Name: "cpu_thermal_throttle", Help: "times a CPU's core was slowed down because it was too hot",
		Kind: metric.Counter, Keys: []string{"id"}, Sampler: "thermal_throttle"}
	cpuThrottleTime = &metric.Desc{Name: "cpu_thermal_throttle_time", Help: "time a CPU's core was slowed down because it was too hot",
		Unit: metric.Nanoseconds, Kind: metric.Counter, Keys: []string{"id"}, Sampler: "thermal_throttle"}
	packageThrottle = &metric.Desc{Name: "cpu_package_thermal_throttle", Help: "times a processor package was slowed down because it was too hot",
		Kind: metric.Counter, Keys: []string{"package"}, Sampler: "thermal_throttle"}
	packageThrottleTime = &metric.Desc{Name: "cpu_package_thermal_throttle_time", Help: "time a processor package was slowed down because it was too hot",
		Unit: metric.Nanoseconds, Kind: metric.Counter, Keys: []string{"package"}, Sampler: "thermal_throttle"}
)

// cpuSamplers are those of /sys/devices/system/cpu
// (Documentation/ABI/testing/sysfs-devices-system-cpu).
func cpuSamplers(root string) []source.Sampler {
	dir := filepath.Join(root, "sys/devices/system/cpu")
	info := filepath.Join(root, "proc/cpuinfo")
	return []source.Sampler{
		{
			Name: "cpufreq", Reads: "/sys/devices/system/cpu/cpu*/cpufreq, else /proc/cpuinfo", Needs: "CONFIG_CPU_FREQ, or an x86 CPU",
			// Until 5.18 the kernel sleeps up to 20 ms for each CPU whose
			// cycles were not counted lately (arch_freq_get_on_cpu), and
			// cpuinfo_cur_freq asks the hardware.
			Every: 10 * time.Second, Blocking: true,
			Descs: []*metric.Desc{cpuFrequency, cpuFrequencyLimit, cpuFrequencyTransitions},
			Open:  func() (source.Source, error) { return openFrequency(dir, info) },
		},
		{
			Name: "cpuidle", Reads: "/sys/devices/system/cpu/cpu*/cpuidle", Needs: "CONFIG_CPU_IDLE and a driver; rejected since 5.9",
			Every: 5 * time.Second,
			Descs: []*metric.Desc{cpuIdleTime, cpuIdleEntries, cpuIdleRejected},
			Open: func() (source.Source, error) {
				return openTree("cpuidle", func() []attribute { return findIdle(dir) },
					"no CPU has idle states in /sys/devices/system/cpu/cpu*/cpuidle: there is no cpuidle driver, as in most virtual machines")
			},
		},
		{
			Name: "thermal_throttle", Reads: "/sys/devices/system/cpu/cpu*/thermal_throttle", Needs: "an Intel CPU, CONFIG_X86_THERMAL_VECTOR; times since 5.7",
			Every: 5 * time.Second,
			Descs: []*metric.Desc{cpuThrottle, cpuThrottleTime, packageThrottle, packageThrottleTime},
			Open: func() (source.Source, error) {
				return openTree("thermal_throttle", func() []attribute { return findThrottle(dir) },
					"no CPU has /sys/devices/system/cpu/cpu*/thermal_throttle: it is no Intel CPU, or a virtual one")
			},
		},
	}
}

// openFrequency prefers cpufreq, which names each CPU's rate in a file.
func openFrequency(dir, info string) (source.Source, error) {
	t, err := openTree("cpufreq", func() []attribute { return findFrequency(dir) }, "")
	if err == nil {
		return t, nil
	}
	if c, err := openInfo(info); err == nil {
		return c, nil
	}
	return nil, source.Unsupported("there is no cpufreq driver, and /proc/cpuinfo says no cpu MHz")
}

// frequencies are the files of a cpufreq policy, in kHz
// (Documentation/admin-guide/pm/cpufreq.rst).
var frequencies = []struct {
	file, bound, of string
}{
	{"cpuinfo_max_freq", "max", "hardware"}, {"cpuinfo_min_freq", "min", "hardware"},
	{"scaling_max_freq", "max", "scaling"}, {"scaling_min_freq", "min", "scaling"},
}

func findFrequency(dir string) []attribute {
	var found []attribute
	kilo := scale{times: 1000}
	for _, cpu := range numbered(dir, "cpu") {
		policy, id := filepath.Join(dir, "cpu"+strconv.Itoa(cpu), "cpufreq"), strconv.Itoa(cpu)
		// scaling_cur_freq is there with every driver. A few cannot say
		// it ("<unknown>") where they can ask the hardware.
		current := filepath.Join(policy, "scaling_cur_freq")
		if _, ok := integer([]byte(text(current))); !ok {
			current = filepath.Join(policy, "cpuinfo_cur_freq")
		}
		if exists(current) {
			found = append(found, attribute{path: current, desc: cpuFrequency, values: []string{id, "cpufreq"}, scale: kilo})
		}
		for _, f := range frequencies {
			if path := filepath.Join(policy, f.file); exists(path) {
				found = append(found, attribute{path: path, desc: cpuFrequencyLimit, values: []string{f.bound, id, f.of}, scale: kilo})
			}
		}
		if path := filepath.Join(policy, "stats/total_trans"); exists(path) {
			found = append(found, attribute{path: path, desc: cpuFrequencyTransitions, values: []string{id}})
		}
	}
	return found
}

// idleFiles are those of an idle state; times are in microseconds
// (Documentation/admin-guide/pm/cpuidle.rst).
var idleFiles = []struct {
	file string
	desc *metric.Desc
	scale
}{
	{"time", cpuIdleTime, scale{times: 1000}}, {"usage", cpuIdleEntries, scale{}}, {"rejected", cpuIdleRejected, scale{}},
}

func findIdle(dir string) []attribute {
	var found []attribute
	for _, cpu := range numbered(dir, "cpu") {
		idle := filepath.Join(dir, "cpu"+strconv.Itoa(cpu), "cpuidle")
		names := map[string]bool{}
		for _, state := range numbered(idle, "state") {
			at := filepath.Join(idle, "state"+strconv.Itoa(state))
			name := text(at, "name")
			if name == "" || names[name] { // firmware may give two the same
				name += "state" + strconv.Itoa(state)
			}
			names[name] = true
			for _, f := range idleFiles {
				if path := filepath.Join(at, f.file); exists(path) {
					found = append(found, attribute{path: path, desc: f.desc, values: []string{strconv.Itoa(cpu), name}, scale: f.scale})
				}
			}
		}
	}
	return found
}

// throttleFiles are those of a CPU. The interrupt for a package comes to each
// of its CPUs, and each counts it: one speaks for all.
var throttleFiles = []struct {
	file string
	desc *metric.Desc
	scale
	whole bool // of the package
}{
	{"core_throttle_count", cpuThrottle, scale{}, false},
	{"core_throttle_total_time_ms", cpuThrottleTime, scale{times: 1e6}, false},
	{"package_throttle_count", packageThrottle, scale{}, true},
	{"package_throttle_total_time_ms", packageThrottleTime, scale{times: 1e6}, true},
}

func findThrottle(dir string) []attribute {
	var found []attribute
	seen := map[string]bool{}
	for _, cpu := range numbered(dir, "cpu") {
		at := filepath.Join(dir, "cpu"+strconv.Itoa(cpu))
		pkg := text(at, "topology/physical_package_id")
		first := pkg != "" && !seen[pkg]
		for _, f := range throttleFiles {
			path, label := filepath.Join(at, "thermal_throttle", f.file), strconv.Itoa(cpu)
			if !exists(path) || f.whole && !first {
				continue
			}
			if f.whole {
				label, seen[pkg] = pkg, true
			}
			found = append(found, attribute{path: path, desc: f.desc, values: []string{label}, scale: f.scale})
		}
	}
	return found
}
