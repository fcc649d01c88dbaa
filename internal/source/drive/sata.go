// SPDX-License-Identifier: Apache-2.0

package drive

import (
	"errors"
	"fmt"
	"time"
)

// The answer to SMART READ DATA: a revision, 30 attributes of 12 bytes each,
// and a checksum in the last byte. The attributes were never standardised
// beyond ATA-3 (SFF-8035i); those below mean the same with every maker.
const (
	smartSize       = 512
	smartAttributes = 30
	attributeSize   = 12
	attributeRaw    = 5 // offset of the raw value, six bytes, little endian
)

// ataFields are attributes by number, with as many bytes of the raw value as
// are not used for something else by some makers.
var ataFields = []struct {
	id, bytes int
	reading
	times uint64
}{
	{5, 2, reallocated, 1}, {9, 3, powerOnTime, uint64(time.Hour)}, {12, 6, powerCycles, 1}, {187, 6, mediaErrors, 1},
	{197, 6, pending, 1}, {198, 6, uncorrectable, 1}, {199, 6, linkErrors, 1},
}

var errChecksum = errors.New("SMART data with a wrong checksum")

// parseSMART reads the answer. The temperature is that of attribute 194, or of
// 190 where there is none, its lowest byte (others are extremes), signed.
func parseSMART(data []byte) (h health, err error) {
	if len(data) != smartSize {
		return h, fmt.Errorf("SMART data of %d bytes, want %d", len(data), smartSize)
	}
	var sum byte
	for _, b := range data {
		sum += b
	}
	if sum != 0 {
		return h, errChecksum
	}
	for i := range smartAttributes {
		a := data[2+i*attributeSize:][:attributeSize]
		id, raw := int(a[0]), a[attributeRaw:attributeRaw+6]
		if id == 194 || id == 190 && !h.has[temperature] {
			h.set(temperature, uint64(int64(int8(raw[0]))))
		}
		for _, f := range ataFields {
			if f.id == id {
				h.set(f.reading, saturating(little(raw[:f.bytes]), f.times))
			}
		}
	}
	return h, nil
}

// registers are what an ATA command left in those of the drive.
type registers struct {
	status, count, mid, high byte
}

// failed tells by the status register: an error, or a fault of the device.
func (r registers) failed() bool { return r.status&0x21 != 0 }

var errSense = errors.New("no ATA registers in the sense data")

// parseSense reads the registers from sense data: from the ATA Status Return
// descriptor, or from the fixed form (SAT-4, 12.2.2.6 and 12.2.2.7).
func parseSense(sense []byte) (r registers, err error) {
	if len(sense) < 12 {
		return r, errSense
	}
	switch sense[0] & 0x7f {
	case 0x70, 0x71:
		return registers{status: sense[4], count: sense[6], mid: sense[10], high: sense[11]}, nil
	case 0x72, 0x73:
		for rest := sense[8:]; len(rest) >= 2; {
			size := 2 + int(rest[1])
			if size > len(rest) {
				break
			}
			if rest[0] == 0x09 && size >= 14 {
				return registers{status: rest[13], count: rest[5], mid: rest[9], high: rest[11]}, nil
			}
			rest = rest[size:]
		}
	}
	return r, errSense
}

// asleep tells by the count register after CHECK POWER MODE (ACS-4, 7.3): in
// standby (0x00, or 0x01 on the way out of it).
func (r registers) asleep() bool { return r.count == 0x00 || r.count == 0x01 }

// well tells by the LBA registers after SMART RETURN STATUS (ACS-3, 7.53.6).
func (r registers) well() (ok, known bool) {
	switch {
	case r.mid == 0x4f && r.high == 0xc2:
		return true, true
	case r.mid == 0xf4 && r.high == 0x2c:
		return false, true
	}
	return false, false
}
