// SPDX-License-Identifier: Apache-2.0

package drive

import (
	"encoding/binary"
	"math"
	"testing"
	"time"
	"unsafe"
)

// TestLayouts holds the structures against those of the kernel's headers on
// 64-bit machines: sizes, and where the members are that matter.
func TestLayouts(t *testing.T) {
	var n nvmeCommand
	var h sgHeader
	for _, l := range []struct {
		what      string
		got, want uintptr
	}{
		{"nvme_passthru_cmd", unsafe.Sizeof(n), 72}, {"addr", unsafe.Offsetof(n.addr), 24}, {"data_len", unsafe.Offsetof(n.dataLen), 36},
		{"cdw10", unsafe.Offsetof(n.cdw10), 40}, {"timeout_ms", unsafe.Offsetof(n.timeoutMillis), 64}, {"result", unsafe.Offsetof(n.completion), 68},
		{"sg_io_hdr", unsafe.Sizeof(h), 88}, {"cmd_len", unsafe.Offsetof(h.cmdLen), 8}, {"iovec_count", unsafe.Offsetof(h.iovecs), 10},
		{"dxfer_len", unsafe.Offsetof(h.dataLen), 12}, {"dxferp", unsafe.Offsetof(h.data), 16}, {"cmdp", unsafe.Offsetof(h.cmd), 24},
		{"sbp", unsafe.Offsetof(h.sense), 32}, {"timeout", unsafe.Offsetof(h.timeoutMillis), 40}, {"usr_ptr", unsafe.Offsetof(h.user), 56},
		{"status", unsafe.Offsetof(h.status), 64}, {"sb_len_wr", unsafe.Offsetof(h.senseLen), 67}, {"host_status", unsafe.Offsetof(h.hostStatus), 68},
		{"resid", unsafe.Offsetof(h.resid), 72}, {"info", unsafe.Offsetof(h.info), 80},
		{"size in the ioctl", nvmeAdminIoctl >> 16 & 0x3fff, unsafe.Sizeof(n)},
	} {
		if l.got != l.want {
			t.Errorf("%s: %d, want %d", l.what, l.got, l.want)
		}
	}
}

// healthLog is a page in which every number is another one.
func healthLog() []byte {
	p := make([]byte, logHealthSize)
	le := binary.LittleEndian
	p[0] = 1<<1 | 1<<3
	le.PutUint16(p[1:], 323)
	p[3], p[4], p[5] = 97, 10, 103
	for i, at := range []int{32, 48, 64, 80, 96, 112, 128, 144, 160, 176} {
		le.PutUint64(p[at:], uint64(101+i))
	}
	le.PutUint32(p[192:], 31)
	le.PutUint32(p[196:], 17)
	le.PutUint16(p[200:], 300)
	le.PutUint16(p[214:], 270)
	for i, at := range []int{216, 220, 224, 228} {
		le.PutUint32(p[at:], uint32(41+i))
	}
	return p
}

// means checks every reading: those of want, and that no other is there.
func means(t *testing.T, h *health, want map[reading]int64) {
	t.Helper()
	for r := range readings {
		value, ok := want[r]
		if h.has[r] != ok || ok && int64(h.values[r]) != value {
			t.Errorf("%s %s = %d, %v; want %d, %v", series[r].desc.Name, series[r].extra, int64(h.values[r]), h.has[r], value, ok)
		}
	}
}

const (
	second = int64(time.Second)
	minute = int64(time.Minute)
	hour   = int64(time.Hour)
)

var healthLogMeans = map[reading]int64{
	temperature: 50, sensor1: 27, sensor8: -3, healthy: 0,
	spareWarning: 0, temperatureWarning: 1, reliabilityWarning: 0, readOnlyWarning: 1, backupWarning: 0, persistentWarning: 0,
	spare: 97, spareThreshold: 10, wear: 103,
	bytesRead: 101 * 512_000, bytesWritten: 102 * 512_000, reads: 103, writes: 104, busyTime: 105 * minute,
	powerCycles: 106, powerOnTime: 107 * hour, unsafeShutdowns: 108, mediaErrors: 109, errorLogEntries: 110,
	warningTime: 31 * minute, criticalTime: 17 * minute,
	throttles1: 41, throttles2: 42, throttleTime1: 43 * second, throttleTime2: 44 * second,
}

func TestHealthLog(t *testing.T) {
	h, err := parseNVMe(healthLog())
	if err != nil {
		t.Fatal(err)
	}
	means(t, &h, healthLogMeans)
	p := make([]byte, logHealthSize)
	for i := range 16 { // a counter of 128 bits, all set
		p[160+i] = 0xff
	}
	binary.LittleEndian.PutUint64(p[128:], 1<<60) // hours: beyond 64 bits of nanoseconds
	if h, err = parseNVMe(p); err != nil || h.values[mediaErrors] != math.MaxUint64 || h.values[powerOnTime] != math.MaxUint64 {
		t.Errorf("%d errors, on for %d ns, %v; want the highest number there is", h.values[mediaErrors], h.values[powerOnTime], err)
	}
	if h.has[temperature] || h.has[sensor1] || h.values[healthy] != 1 {
		t.Errorf("a drive that says nothing of its temperature: %+v", h)
	}
	if _, err := parseNVMe(p[:100]); err == nil {
		t.Error("a page of 100 bytes is accepted")
	}
}

// attribute is a SMART attribute as it lies in the data.
func attribute(id byte, raw ...byte) []byte {
	a := make([]byte, attributeSize)
	a[0], a[3], a[4] = id, 100, 99
	copy(a[attributeRaw:], raw)
	return a
}

func smartData(attributes ...[]byte) []byte {
	data := make([]byte, smartSize)
	data[0] = 16
	for i, a := range attributes {
		copy(data[2+i*attributeSize:], a)
	}
	return seal(data)
}

// seal makes the checksum right.
func seal(data []byte) []byte {
	data[smartSize-1] = 0
	var sum byte
	for _, b := range data {
		sum += b
	}
	data[smartSize-1] = -sum
	return data
}

var (
	smartFixture = smartData(
		attribute(1, 0xff, 0xff), attribute(5, 13, 0, 7), attribute(9, 0x10, 0x27, 0, 0x55), attribute(12, 31),
		attribute(190, 40), attribute(194, 36, 0, 17, 0, 52), attribute(187, 2), attribute(197, 3), attribute(198, 4), attribute(199, 0, 1))
	smartFixtureMeans = map[reading]int64{reallocated: 13, powerOnTime: 10_000 * hour, powerCycles: 31, temperature: 36,
		mediaErrors: 2, pending: 3, uncorrectable: 4, linkErrors: 256}
)

func TestSMART(t *testing.T) {
	h, err := parseSMART(smartFixture)
	if err != nil {
		t.Fatal(err)
	}
	means(t, &h, smartFixtureMeans)
	if h, err = parseSMART(smartData(attribute(190, 0xfb))); err != nil {
		t.Fatal(err)
	}
	means(t, &h, map[reading]int64{temperature: -5})
	// 194 is preferred wherever it is.
	if h, err = parseSMART(smartData(attribute(194, 30), attribute(190, 40))); err != nil || h.values[temperature] != 30 {
		t.Errorf("%d degrees, %v", h.values[temperature], err)
	}
	damaged := append([]byte{}, smartFixture...)
	damaged[100]++
	if _, err := parseSMART(damaged); err != errChecksum {
		t.Errorf("%v, want %v", err, errChecksum)
	}
	if _, err := parseSMART(nil); err == nil {
		t.Error("nothing is accepted")
	}
}

// descriptorSense has the ATA Status Return descriptor after another one.
func descriptorSense(r registers) []byte {
	return []byte{0x72, 0x01, 0x00, 0x1d, 0, 0, 0, 18, 0x03, 2, 0, 0, 0x09, 0x0c, 0, 0, 0, r.count, 0, 1, 0, r.mid, 0, r.high, 0, r.status}
}

func fixedSense(r registers) []byte {
	return []byte{0x70, 0, 0x01, 0, r.status, 0, r.count, 10, 0, 1, r.mid, r.high, 0, 0x1d, 0, 0, 0, 0}
}

func TestSense(t *testing.T) {
	want := registers{status: 0x50, count: 0xff, mid: 0xf4, high: 0x2c}
	for _, sense := range [][]byte{descriptorSense(want), fixedSense(want)} {
		if got, err := parseSense(sense); err != nil || got != want {
			t.Errorf("% x: %+v, %v; want %+v", sense, got, err, want)
		}
	}
	for _, sense := range [][]byte{nil, make([]byte, 64), descriptorSense(want)[:20], {0x72, 0, 0, 0, 0, 0, 0, 4, 9, 200, 0, 0}} {
		if got, err := parseSense(sense); err == nil {
			t.Errorf("% x: %+v is accepted", sense, got)
		}
	}
	for _, c := range []struct {
		r         registers
		ok, known bool
	}{{registers{mid: 0x4f, high: 0xc2}, true, true}, {registers{mid: 0xf4, high: 0x2c}, false, true}, {registers{}, false, false}} {
		if ok, known := c.r.well(); ok != c.ok || known != c.known {
			t.Errorf("%+v: well %v, known %v", c.r, ok, known)
		}
	}
}

func FuzzHealthLog(f *testing.F) {
	f.Add(healthLog())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseNVMe(b)
		if (err == nil) != (len(b) == logHealthSize) || err == nil && h.values[spare] != uint64(b[3]) {
			t.Errorf("%d bytes: %v", len(b), err)
		}
	})
}

func FuzzSMART(f *testing.F) {
	f.Add(smartFixture)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == smartSize {
			b = seal(append([]byte{}, b...))
		}
		h, err := parseSMART(b)
		if (err == nil) != (len(b) == smartSize) {
			t.Errorf("%d bytes: %v", len(b), err)
		}
		if celsius := int64(h.values[temperature]); celsius < -128 || celsius > 127 {
			t.Errorf("%d degrees", celsius)
		}
	})
}

func FuzzSense(f *testing.F) {
	f.Add(descriptorSense(registers{1, 2, 3, 4}))
	f.Add(fixedSense(registers{1, 2, 3, 4}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseSense(b); err != nil && r != (registers{}) {
			t.Errorf("%+v with %v", r, err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	page := healthLog()
	for b.Loop() {
		if _, err := parseNVMe(page); err != nil {
			b.Fatal(err)
		}
	}
}
