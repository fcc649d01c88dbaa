// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"maps"
	"strings"
	"testing"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// infoText is of a machine whose CPU 1 is offline.
const infoText = `processor	: 0
vendor_id	: GenuineIntel
cpu MHz		: 2599.998
cache size	: 16384 KB

processor	: 2
cpu MHz		: 800.007

`

func TestFrequency(t *testing.T) {
	f := newFake(t, map[string]string{
		"sys/devices/system/cpu/cpu0/cpufreq":                      "-> ../cpufreq/policy0",
		"sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq":  "1400123",
		"sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq":  "3700000",
		"sys/devices/system/cpu/cpufreq/policy0/cpuinfo_min_freq":  "800000",
		"sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq":  "3100000",
		"sys/devices/system/cpu/cpufreq/policy0/scaling_min_freq":  "1000000",
		"sys/devices/system/cpu/cpufreq/policy0/stats/total_trans": "31",
		"sys/devices/system/cpu/cpu10/cpufreq":                     "-> ../cpufreq/policy10",
		"sys/devices/system/cpu/cpufreq/policy10/scaling_cur_freq": "<unknown>",
		"sys/devices/system/cpu/cpufreq/policy10/cpuinfo_cur_freq": "2000000",
		"sys/devices/system/cpu/cpuidle/current_driver":            "intel_idle",
		"proc/cpuinfo": infoText,
	})
	same(t, read(t, f.open("cpufreq")), map[string]float64{
		"cpu_frequency 0 cpufreq":            1400123e3,
		"cpu_frequency 10 cpufreq":           2e9,
		"cpu_frequency_limit max 0 hardware": 3.7e9,
		"cpu_frequency_limit min 0 hardware": 8e8,
		"cpu_frequency_limit max 0 scaling":  3.1e9,
		"cpu_frequency_limit min 0 scaling":  1e9,
		"cpu_frequency_transitions 0":        31,
	})
}

func TestFrequencyWithoutDriver(t *testing.T) {
	f := newFake(t, map[string]string{"proc/cpuinfo": infoText})
	s := f.open("cpufreq")
	same(t, read(t, s), map[string]float64{"cpu_frequency 0 cpuinfo": 2599998e3, "cpu_frequency 2 cpuinfo": 800007e3})
	f.write("proc/cpuinfo", "processor : 5\ncpu MHz : 1000.000")
	same(t, read(t, s), map[string]float64{"cpu_frequency 5 cpuinfo": 1e9})
	for _, text := range []string{"", "processor : x\ncpu MHz : 1.000", "processor : 0\ncpu MHz : 1", "processor : 0\ncpu MHz : 1.0x0",
		"processor : 1\ncpu MHz : 1.000\nprocessor : 1\ncpu MHz : 1.000", "cpu MHz : 1.000"} {
		if err := s.(*info).parse([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestIdle(t *testing.T) {
	const at = "sys/devices/system/cpu/cpu3/cpuidle/"
	f := newFake(t, map[string]string{
		at + "state0/name": "POLL", at + "state0/time": "17", at + "state0/usage": "5", at + "state0/rejected": "0", at + "state0/latency": "0",
		at + "state1/name": "C1E", at + "state1/time": "4102444800123456", at + "state1/usage": "4294967311",
		at + "state2/name": "C1E", at + "state2/time": "1",
	})
	same(t, read(t, f.open("cpuidle")), map[string]float64{
		"cpu_idle_time 3 POLL": 17e3, "cpu_idle_entries 3 POLL": 5, "cpu_idle_rejected 3 POLL": 0,
		"cpu_idle_time 3 C1E": 4102444800123456e3, "cpu_idle_entries 3 C1E": 4294967311,
		"cpu_idle_time 3 C1Estate2": 1e3,
	})
}

func TestThrottle(t *testing.T) {
	files := map[string]string{}
	for cpu, pkg := range map[string]string{"0": "0", "1": "0", "2": "1"} {
		at := "sys/devices/system/cpu/cpu" + cpu + "/"
		files[at+"topology/physical_package_id"] = pkg
		files[at+"thermal_throttle/core_throttle_count"] = "1" + cpu
		files[at+"thermal_throttle/core_throttle_total_time_ms"] = "2" + cpu
		files[at+"thermal_throttle/package_throttle_count"] = "3" + pkg
		files[at+"thermal_throttle/package_throttle_total_time_ms"] = "4" + pkg
		files[at+"thermal_throttle/core_throttle_max_time_ms"] = "999"
	}
	same(t, read(t, newFake(t, files).open("thermal_throttle")), map[string]float64{
		"cpu_thermal_throttle 0": 10, "cpu_thermal_throttle 1": 11, "cpu_thermal_throttle 2": 12,
		"cpu_thermal_throttle_time 0": 20e6, "cpu_thermal_throttle_time 1": 21e6, "cpu_thermal_throttle_time 2": 22e6,
		"cpu_package_thermal_throttle 0": 30, "cpu_package_thermal_throttle 1": 31,
		"cpu_package_thermal_throttle_time 0": 40e6, "cpu_package_thermal_throttle_time 1": 41e6,
	})
}

var hwmonFiles = map[string]string{
	// coretemp: labels, a bound and an alarm.
	"sys/class/hwmon/hwmon0/name":             "coretemp",
	"sys/class/hwmon/hwmon0/device":           "-> ../../../devices/platform/coretemp.0",
	"sys/class/hwmon/hwmon0/temp1_input":      "45500",
	"sys/class/hwmon/hwmon0/temp1_label":      "Package id 0",
	"sys/class/hwmon/hwmon0/temp1_crit":       "100000",
	"sys/class/hwmon/hwmon0/temp1_crit_alarm": "0",
	"sys/class/hwmon/hwmon0/temp10_input":     "-1000",
	"sys/class/hwmon/hwmon0/temp11_input":     "1",
	"sys/class/hwmon/hwmon0/temp11_label":     "Package id 0",
	// A board's chip without a device, of all kinds.
	"sys/class/hwmon/hwmon1/name":             "nct6775",
	"sys/class/hwmon/hwmon1/fan1_input":       "1337",
	"sys/class/hwmon/hwmon1/fan1_min":         "300",
	"sys/class/hwmon/hwmon1/fan1_fault":       "1",
	"sys/class/hwmon/hwmon1/in0_input":        "1013",
	"sys/class/hwmon/hwmon1/in0_label":        "Vcore",
	"sys/class/hwmon/hwmon1/curr1_input":      "-250",
	"sys/class/hwmon/hwmon1/power1_input":     "1",
	"sys/class/hwmon/hwmon1/power1_average":   "17500000",
	"sys/class/hwmon/hwmon1/power1_cap":       "90000000",
	"sys/class/hwmon/hwmon1/energy1_input":    "123456789012345",
	"sys/class/hwmon/hwmon1/humidity1_input":  "45300",
	"sys/class/hwmon/hwmon1/pwm1":             "51",
	"sys/class/hwmon/hwmon1/pwm1_enable":      "2",
	"sys/class/hwmon/hwmon1/intrusion0_alarm": "1",
}

func TestSensors(t *testing.T) {
	f := newFake(t, hwmonFiles)
	want := map[string]float64{
		"hwmon_temperature coretemp coretemp.0 Package id 0":            45.5,
		"hwmon_temperature_limit crit coretemp coretemp.0 Package id 0": 100,
		"hwmon_alarm crit_alarm coretemp coretemp.0 temp Package id 0":  0,
		"hwmon_temperature coretemp coretemp.0 temp10":                  -1,
		"hwmon_temperature coretemp coretemp.0 temp11":                  0.001,
		"hwmon_fan_speed nct6775 hwmon1 fan1":                           1337,
		"hwmon_fan_speed_limit min nct6775 hwmon1 fan1":                 300,
		"hwmon_alarm fault nct6775 hwmon1 fan fan1":                     1,
		"hwmon_voltage nct6775 hwmon1 Vcore":                            1.013,
		"hwmon_current nct6775 hwmon1 curr1":                            -0.25,
		"hwmon_power nct6775 hwmon1 power1":                             17.5,
		"hwmon_power_limit cap nct6775 hwmon1 power1":                   90,
		"hwmon_energy nct6775 hwmon1 energy1":                           123456789012345,
		"hwmon_humidity nct6775 hwmon1 humidity1":                       45.3,
		"hwmon_fan_duty nct6775 hwmon1 pwm1":                            20,
	}
	same(t, read(t, f.open("hwmon")), want)
	// Another driver takes the number of one that was unloaded.
	f.write("sys/class/hwmon/hwmon0/name", "k10temp")
	changed := map[string]float64{}
	for key, value := range want {
		changed[strings.Replace(key, "coretemp coretemp.0", "k10temp coretemp.0", 1)] = value
	}
	same(t, read(t, f.open("hwmon")), changed)
}

func TestEnergyThatWraps(t *testing.T) {
	const at = "sys/class/powercap/intel-rapl:0"
	f := newFake(t, map[string]string{
		"sys/class/powercap/intel-rapl/enabled": "1",
		at + "/name":                            "package-0",
		at + "/energy_uj":                       "262143000000",
		at + "/max_energy_range_uj":             "262143328850",
		at + "/constraint_0_name":               "long_term",
		at + "/constraint_0_power_limit_uw":     "125000000",
		at + ":0/name":                          "dram",
		at + ":0/energy_uj":                     "11",
		at + ":0/max_energy_range_uj":           "65712999613",
	})
	s := f.open("rapl").(*tree)
	before := host.Wall()
	want := map[string]float64{"rapl_energy intel-rapl:0 package-0": 0, "rapl_energy intel-rapl:0:0 dram": 0,
		"rapl_power_limit long_term intel-rapl:0 package-0": 125}
	same(t, read(t, s), want)
	for _, series := range s.schema.Series {
		if series.Desc.Kind == metric.Counter && series.Start < before {
			t.Errorf("%v begins at %d, before it was read", series.Values, series.Start)
		}
	}
	first := s.schema
	step := func(energy string, used float64) {
		t.Helper()
		f.write(at+"/energy_uj", energy)
		want = maps.Clone(want)
		want["rapl_energy intel-rapl:0 package-0"] += used
		same(t, read(t, s), want)
	}
	step("262143000017", 17)
	step("5", 328833+5) // over the top
	step("5", 0)
	s.next = 0 // to look for files anew keeps the sum
	step("6", 1)
	if s.schema != first {
		t.Error("a counter that wraps began anew")
	}
}

var edacFiles = map[string]string{
	"sys/devices/system/edac/mc/mc0/mc_name":              "Skylake Socket#0 IMC#0",
	"sys/devices/system/edac/mc/mc0/ce_count":             "13",
	"sys/devices/system/edac/mc/mc0/ue_count":             "2",
	"sys/devices/system/edac/mc/mc0/ce_noinfo_count":      "3",
	"sys/devices/system/edac/mc/mc0/csrow0/ce_count":      "10",
	"sys/devices/system/edac/mc/mc0/dimm0/dimm_ce_count":  "7",
	"sys/devices/system/edac/mc/mc0/dimm0/dimm_ue_count":  "0",
	"sys/devices/system/edac/mc/mc0/dimm0/dimm_label":     "CPU_SrcID#0_MC#0_Chan#0_DIMM#0",
	"sys/devices/system/edac/mc/mc0/rank12/dimm_ce_count": "5",
}

func TestMemoryErrors(t *testing.T) {
	same(t, read(t, newFake(t, edacFiles).open("edac")), map[string]float64{
		"edac_errors mc0 Skylake Socket#0 IMC#0 corrected":                      13,
		"edac_errors mc0 Skylake Socket#0 IMC#0 uncorrected":                    2,
		"edac_unlocated_errors mc0 Skylake Socket#0 IMC#0 corrected":            3,
		"edac_csrow_errors mc0 csrow0 corrected":                                10,
		"edac_dimm_errors mc0 dimm0 CPU_SrcID#0_MC#0_Chan#0_DIMM#0 corrected":   7,
		"edac_dimm_errors mc0 dimm0 CPU_SrcID#0_MC#0_Chan#0_DIMM#0 uncorrected": 0,
		"edac_dimm_errors mc0 rank12  corrected":                                5,
	})
}
