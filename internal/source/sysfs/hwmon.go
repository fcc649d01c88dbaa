// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/source"
)

var sensorKeys = []string{"chip", "device", "sensor"}

// sensorGauge describes what a sensor measures.
func sensorGauge(name, help string, unit metric.Unit) *metric.Desc {
	return &metric.Desc{Name: name, Help: help, Unit: unit, Kind: metric.Gauge, Float: true, Keys: sensorKeys, Sampler: "hwmon"}
}

// limitGauge describes the bounds that a sensor has or was given.
func limitGauge(of *metric.Desc) *metric.Desc {
	return &metric.Desc{Name: of.Name + "_limit", Help: "bounds of " + of.Name + ": what the chip or its driver has as lowest, highest, critical",
		Unit: of.Unit, Kind: metric.Gauge, Float: true, Keys: []string{"bound", "chip", "device", "sensor"}, Sampler: "hwmon"}
}

// sensorKind is a kind of sensor: files PREFIXn_SUFFIX
// (Documentation/hwmon/sysfs-interface.rst,
// Documentation/ABI/testing/sysfs-class-hwmon).
type sensorKind struct {
	prefix string
	inputs []string // suffixes of the reading, the preferred first
	desc   *metric.Desc
	limit  *metric.Desc // nil: it has none
	scale
}

var (
	hwmonTemperature = sensorGauge("hwmon_temperature", "temperature at a sensor", "celsius")
	hwmonFan         = sensorGauge("hwmon_fan_speed", "speed of a fan", "revolutions per minute")
	hwmonVoltage     = sensorGauge("hwmon_voltage", "voltage at a sensor", "volts")
	hwmonCurrent     = sensorGauge("hwmon_current", "current through a sensor", "amperes")
	hwmonPower       = sensorGauge("hwmon_power", "power through a sensor, averaged by the chip where it does", "watts")
	hwmonHumidity    = sensorGauge("hwmon_humidity", "relative humidity at a sensor", "percent")
	hwmonDuty        = sensorGauge("hwmon_fan_duty", "duty cycle that a fan is driven with", "percent")
	hwmonEnergy      = &metric.Desc{Name: "hwmon_energy", Help: "energy that went through a sensor", Unit: "microjoules",
		Kind: metric.Counter, Keys: sensorKeys, Sampler: "hwmon"}
	hwmonAlarm = &metric.Desc{Name: "hwmon_alarm", Help: "1 while a chip says that a sensor is out of bounds, or broken (fault)",
		Kind: metric.Gauge, Keys: []string{"alarm", "chip", "device", "kind", "sensor"}, Sampler: "hwmon"}

	sensorKinds = []sensorKind{
		{"temp", []string{"_input"}, hwmonTemperature, limitGauge(hwmonTemperature), scale{per: 1000}},
		{"fan", []string{"_input"}, hwmonFan, limitGauge(hwmonFan), scale{}},
		{"in", []string{"_input"}, hwmonVoltage, limitGauge(hwmonVoltage), scale{per: 1000}},
		{"curr", []string{"_input"}, hwmonCurrent, limitGauge(hwmonCurrent), scale{per: 1000}},
		{"power", []string{"_average", "_input"}, hwmonPower, limitGauge(hwmonPower), scale{per: 1e6}},
		{"humidity", []string{"_input"}, hwmonHumidity, nil, scale{per: 1000}},
		{"pwm", []string{""}, hwmonDuty, nil, scale{per: 2.55}},
		{"energy", []string{"_input"}, hwmonEnergy, nil, scale{}},
	}
	bounds = []string{"min", "max", "lcrit", "crit", "emergency", "cap"}
	alarms = []string{"alarm", "min_alarm", "max_alarm", "lcrit_alarm", "crit_alarm", "emergency_alarm", "cap_alarm", "fault"}
)

func hwmonSampler(root string) source.Sampler {
	dir := filepath.Join(root, "sys/class/hwmon")
	var descs []*metric.Desc
	for _, k := range sensorKinds {
		descs = append(descs, k.desc)
		if k.limit != nil {
			descs = append(descs, k.limit)
		}
	}
	return source.Sampler{
		Name: "hwmon", Reads: "/sys/class/hwmon", Needs: "CONFIG_HWMON and the drivers of the sensors",
		// A chip behind a slow bus (I2C, a management controller) takes
		// milliseconds for each sensor and may hang; drivers keep a reading
		// for a second or two.
		Every: 10 * time.Second, Blocking: true,
		Descs: append(descs, hwmonAlarm),
		Open: func() (source.Source, error) {
			chips := func() []int { return numbered(dir, "hwmon") }
			if !measures(dir) {
				return nil, source.Unsupported("no chip with sensors in /sys/class/hwmon: load its driver (sensors-detect), unless this is a virtual machine")
			}
			return newBank("hwmon", chips, func(n int) func() []attribute {
				return func() []attribute { return findSensors(dir, n) }
			}), nil
		},
	}
}

// measures tells whether any chip has a reading. It opens none, so it cannot
// hang.
func measures(dir string) bool {
	for _, file := range []string{"hwmon*/*_input", "hwmon*/*_average", "hwmon*/device/*_input"} {
		if found, err := filepath.Glob(filepath.Join(dir, file)); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

// findSensors finds the sensors of hwmonN.
func findSensors(dir string, n int) []attribute {
	hwmon := "hwmon" + strconv.Itoa(n)
	at := filepath.Join(dir, hwmon)
	if !exists(filepath.Join(at, "name")) {
		at = filepath.Join(at, "device") // drivers of before 3.13
	}
	// hwmonN depends on the order in which drivers are loaded; the name of
	// the device does not.
	device := hwmon
	if target, err := os.Readlink(filepath.Join(dir, hwmon, "device")); err == nil {
		device = filepath.Base(target)
	}
	return findChip(at, text(at, "name"), device)
}

// findChip finds the sensors of a chip. A sensor is called what its label
// says, or after its file (temp1) where it has none or another has it too.
func findChip(at, chip, device string) []attribute {
	var found []attribute
	files := map[string]bool{}
	entries, err := os.ReadDir(at)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		files[e.Name()] = true
	}
	for _, kind := range sensorKinds {
		names := map[string]bool{}
		for _, sensor := range sensorsOf(files, kind) {
			name := text(at, sensor+"_label")
			if name == "" || names[name] {
				name = sensor
			}
			names[name] = true
			add := func(file string, desc *metric.Desc, s scale, values ...string) {
				if desc != nil && files[file] {
					found = append(found, attribute{path: filepath.Join(at, file), desc: desc, values: values, scale: s})
				}
			}
			for _, suffix := range kind.inputs {
				if files[sensor+suffix] {
					add(sensor+suffix, kind.desc, kind.scale, chip, device, name)
					break
				}
			}
			for _, bound := range bounds {
				add(sensor+"_"+bound, kind.limit, kind.scale, bound, chip, device, name)
			}
			for _, alarm := range alarms {
				add(sensor+"_"+alarm, hwmonAlarm, scale{}, alarm, chip, device, kind.prefix, name)
			}
		}
	}
	return found
}

// sensorsOf lists the sensors of a kind, such as temp1, by number.
func sensorsOf(files map[string]bool, kind sensorKind) []string {
	var numbers []int
	for file := range files {
		rest, ok := strings.CutPrefix(file, kind.prefix)
		if !ok {
			continue
		}
		for _, suffix := range kind.inputs {
			digits, ok := strings.CutSuffix(rest, suffix)
			if n, err := strconv.ParseUint(digits, 10, 16); ok && err == nil && !slices.Contains(numbers, int(n)) {
				numbers = append(numbers, int(n))
			}
		}
	}
	slices.Sort(numbers)
	sensors := make([]string, len(numbers))
	for i, n := range numbers {
		sensors[i] = kind.prefix + strconv.Itoa(n)
	}
	return sensors
}
