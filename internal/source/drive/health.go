// SPDX-License-Identifier: Apache-2.0

package drive

import (
	"slices"

	"rezolus/internal/metric"
)

// reading is a number that the health of a drive may have.
type reading int

// The readings, in the order of the series of a drive.
const (
	temperature reading = iota
	warningTime
	criticalTime
	throttleTime1
	throttleTime2
	throttles1
	throttles2
	sensor1
	sensor2
	sensor3
	sensor4
	sensor5
	sensor6
	sensor7
	sensor8
	healthy
	standby
	spareWarning
	temperatureWarning
	reliabilityWarning
	readOnlyWarning
	backupWarning
	persistentWarning
	spare
	spareThreshold
	wear
	bytesRead
	bytesWritten
	reads
	writes
	busyTime
	powerCycles
	powerOnTime
	unsafeShutdowns
	mediaErrors
	errorLogEntries
	reallocated
	pending
	uncorrectable
	linkErrors
	readings // how many there are
)

// health is what a drive said of itself. What it did not say has is false for.
type health struct {
	values [readings]uint64
	has    [readings]bool
}

func (h *health) set(r reading, value uint64) { h.values[r], h.has[r] = value, true }

func (h *health) setIf(r reading, ok bool) {
	h.set(r, 0)
	if ok {
		h.values[r] = 1
	}
}

// desc describes a metric of drives, with the labels of all and extra.
func desc(name, help string, unit metric.Unit, kind metric.Kind, extra ...string) *metric.Desc {
	keys := append([]string{"device", "model", "serial", "type"}, extra...)
	slices.Sort(keys)
	return &metric.Desc{Name: name, Help: help, Unit: unit, Kind: kind, Keys: keys, Sampler: "drivehealth"}
}

const (
	celsius metric.Unit = "celsius"
	percent metric.Unit = "percent"
)

var (
	descTemperature  = desc("drive_temperature", "temperature of a drive: of NVMe the composite one, of SATA attribute 194, else 190", celsius, metric.Gauge)
	descWarning      = desc("drive_temperature_warning_time", "time an NVMe drive was above its warning temperature and below the critical one, in steps of a minute", metric.Nanoseconds, metric.Counter)
	descCritical     = desc("drive_temperature_critical_time", "time an NVMe drive was above its critical temperature, in steps of a minute", metric.Nanoseconds, metric.Counter)
	descThrottleTime = desc("drive_thermal_throttle_time", "time an NVMe drive was in each of its thermal management states, in steps of a second", metric.Nanoseconds, metric.Counter, "level")
	descThrottles    = desc("drive_thermal_throttle_transitions", "times an NVMe drive entered each of its thermal management states", metric.None, metric.Counter, "level")
	descSensor       = desc("drive_sensor_temperature", "temperature at each sensor of an NVMe drive", celsius, metric.Gauge, "sensor")
	descHealthy      = desc("drive_healthy", "1 while a drive says that it is well: SATA by SMART RETURN STATUS, NVMe without a critical warning", metric.None, metric.Gauge)
	descStandby      = desc("drive_standby", "1 while a SATA drive has stopped spinning; it is then asked nothing else, which would wake it", metric.None, metric.Gauge)
	descCriticalBit  = desc("drive_critical_warning", "1 while an NVMe drive warns for a reason", metric.None, metric.Gauge, "reason")
	descSpare        = desc("drive_spare", "spare capacity an NVMe drive has left, of what it was made with", percent, metric.Gauge)
	descThreshold    = desc("drive_spare_threshold", "spare capacity below which an NVMe drive warns", percent, metric.Gauge)
	descWear         = desc("drive_wear", "part of an NVMe drive's life that is used, as its maker estimates it; it may exceed 100", percent, metric.Gauge)
	descBytes        = desc("drive_bytes", "data a host read from and wrote to an NVMe drive in its life, in steps of 512,000 bytes", metric.Bytes, metric.Counter, "op")
	descCommands     = desc("drive_commands", "read and write commands an NVMe drive completed in its life", metric.None, metric.Counter, "op")
	descBusy         = desc("drive_busy_time", "time an NVMe controller had commands to do, in steps of a minute", metric.Nanoseconds, metric.Counter)
	descCycles       = desc("drive_power_cycles", "times a drive was switched on", metric.None, metric.Counter)
	descPowerOn      = desc("drive_power_on_time", "time a drive was switched on, in steps of an hour", metric.Nanoseconds, metric.Counter)
	descUnsafe       = desc("drive_unsafe_shutdowns", "times an NVMe drive lost power without notice", metric.None, metric.Counter)
	descMedia        = desc("drive_media_errors", "errors a drive could not correct: of NVMe media and data integrity errors, of SATA attribute 187", metric.None, metric.Counter)
	descErrorLog     = desc("drive_error_log_entries", "entries an NVMe controller wrote to its error log in its life", metric.None, metric.Counter)
	descReallocated  = desc("drive_reallocated_sectors", "sectors that a SATA drive replaced by spare ones (attribute 5)", metric.None, metric.Gauge)
	descPending      = desc("drive_pending_sectors", "sectors that a SATA drive could not read and waits to replace (attribute 197)", metric.None, metric.Gauge)
	descLost         = desc("drive_uncorrectable_sectors", "sectors that a SATA drive found unreadable when it tested itself (attribute 198)", metric.None, metric.Gauge)
	descLink         = desc("drive_interface_errors", "transfers between host and SATA drive that were damaged on the way (attribute 199)", metric.None, metric.Counter)
	descFailures     = desc("drive_read_failures", "times a drive's health could not be read: it answered with an error, or not in time", metric.None, metric.Counter, "reason")
)

// series says for each reading what metric it is of, and the label value that
// tells it from others of the metric.
var series = [readings]struct {
	desc  *metric.Desc
	extra string
}{
	temperature: {descTemperature, ""}, warningTime: {descWarning, ""}, criticalTime: {descCritical, ""},
	throttleTime1: {descThrottleTime, "1"}, throttleTime2: {descThrottleTime, "2"},
	throttles1: {descThrottles, "1"}, throttles2: {descThrottles, "2"},
	sensor1: {descSensor, "1"}, sensor2: {descSensor, "2"}, sensor3: {descSensor, "3"}, sensor4: {descSensor, "4"},
	sensor5: {descSensor, "5"}, sensor6: {descSensor, "6"}, sensor7: {descSensor, "7"}, sensor8: {descSensor, "8"},
	healthy: {descHealthy, ""}, standby: {descStandby, ""},
	spareWarning: {descCriticalBit, "spare"}, temperatureWarning: {descCriticalBit, "temperature"},
	reliabilityWarning: {descCriticalBit, "reliability"}, readOnlyWarning: {descCriticalBit, "read_only"},
	backupWarning: {descCriticalBit, "volatile_backup"}, persistentWarning: {descCriticalBit, "persistent_memory"},
	spare: {descSpare, ""}, spareThreshold: {descThreshold, ""}, wear: {descWear, ""},
	bytesRead: {descBytes, "read"}, bytesWritten: {descBytes, "write"}, reads: {descCommands, "read"}, writes: {descCommands, "write"},
	busyTime: {descBusy, ""}, powerCycles: {descCycles, ""}, powerOnTime: {descPowerOn, ""},
	unsafeShutdowns: {descUnsafe, ""}, mediaErrors: {descMedia, ""}, errorLogEntries: {descErrorLog, ""},
	reallocated: {descReallocated, ""}, pending: {descPending, ""}, uncorrectable: {descLost, ""}, linkErrors: {descLink, ""},
}

// descs are all the metrics of the sampler, each once.
func descs() []*metric.Desc {
	all := []*metric.Desc{descFailures}
	seen := map[*metric.Desc]bool{}
	for _, s := range series {
		if !seen[s.desc] {
			seen[s.desc] = true
			all = append(all, s.desc)
		}
	}
	return all
}
