// SPDX-License-Identifier: Apache-2.0

package drive

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// The SMART / Health Information log page (NVM Express Base Specification 2.0,
// 5.16.1.3): its identifier and size.
const (
	logHealth     = 0x02
	logHealthSize = 512
)

// nvmeFields are the numbers of the log page: little endian, size bytes at
// offset, in steps of times.
var nvmeFields = []struct {
	reading
	offset, size int
	times        uint64
}{
	{spare, 3, 1, 1}, {spareThreshold, 4, 1, 1}, {wear, 5, 1, 1},
	{bytesRead, 32, 16, 512_000}, {bytesWritten, 48, 16, 512_000}, {reads, 64, 16, 1}, {writes, 80, 16, 1},
	{busyTime, 96, 16, uint64(time.Minute)}, {powerCycles, 112, 16, 1}, {powerOnTime, 128, 16, uint64(time.Hour)},
	{unsafeShutdowns, 144, 16, 1}, {mediaErrors, 160, 16, 1}, {errorLogEntries, 176, 16, 1},
	{warningTime, 192, 4, uint64(time.Minute)}, {criticalTime, 196, 4, uint64(time.Minute)},
	{throttles1, 216, 4, 1}, {throttles2, 220, 4, 1},
	{throttleTime1, 224, 4, uint64(time.Second)}, {throttleTime2, 228, 4, uint64(time.Second)},
}

// nvmeTemperatures are in kelvins; 0 is what a drive says that has no such
// sensor.
var nvmeTemperatures = []struct {
	reading
	offset int
}{
	{temperature, 1}, {sensor1, 200}, {sensor2, 202}, {sensor3, 204}, {sensor4, 206},
	{sensor5, 208}, {sensor6, 210}, {sensor7, 212}, {sensor8, 214},
}

// freezing is 0 degrees Celsius in whole kelvins, as the specification's own
// thresholds have it.
const freezing = 273

// parseNVMe reads the log page.
func parseNVMe(page []byte) (h health, err error) {
	if len(page) != logHealthSize {
		return h, fmt.Errorf("health log of %d bytes, want %d", len(page), logHealthSize)
	}
	for bit, r := range []reading{spareWarning, temperatureWarning, reliabilityWarning, readOnlyWarning, backupWarning, persistentWarning} {
		h.setIf(r, page[0]>>bit&1 == 1)
	}
	h.setIf(healthy, page[0] == 0)
	for _, t := range nvmeTemperatures {
		if kelvin := binary.LittleEndian.Uint16(page[t.offset:]); kelvin != 0 {
			h.set(t.reading, uint64(int64(kelvin)-freezing))
		}
	}
	for _, f := range nvmeFields {
		h.set(f.reading, saturating(little(page[f.offset:f.offset+f.size]), f.times))
	}
	return h, nil
}

// little is a little-endian number, or the highest one where it has more than
// 64 bits.
func little(b []byte) (n uint64) {
	for i, c := range b {
		if i >= 8 && c != 0 {
			return math.MaxUint64
		}
		n |= uint64(c) << (8 * (i & 7))
	}
	return n
}

func saturating(a, b uint64) uint64 {
	if high, low := bits.Mul64(a, b); high == 0 {
		return low
	}
	return math.MaxUint64
}
