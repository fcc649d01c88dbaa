// SPDX-License-Identifier: Apache-2.0

package drive

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// bay is a machine with drives that answer what a test says.
type bay struct {
	t        *testing.T
	nvmeSays func(fd int, page *[512]byte) (uint32, error)
	power    registers // after CHECK POWER MODE
	verdict  registers // after SMART RETURN STATUS
	smart    []byte
	commands []byte
}

var (
	awake = registers{status: 0x50, count: 0xff}
	fine  = registers{status: 0x50, mid: 0x4f, high: 0xc2}
)

func (b *bay) open(path string) (int, error) {
	if strings.HasSuffix(path, "denied") {
		return 0, unix.EACCES
	}
	return int(path[len(path)-1]), nil
}

func (b *bay) close(int) {}

func (b *bay) nvme(fd int, c *nvmeCommand) (uint32, error) {
	if c.opcode != 2 || c.nsid != 0xffffffff || c.cdw10 != 0x007f0002 || c.dataLen != 512 || c.timeoutMillis != 0 {
		b.t.Errorf("command %+v", c)
	}
	return b.nvmeSays(fd, (*[512]byte)(*(*unsafe.Pointer)(unsafe.Pointer(&c.addr))))
}

func (b *bay) sg(_ int, h *sgHeader) error {
	cdb := (*[16]byte)(h.cmd)
	sense := func(r registers) {
		h.status, h.driverStatus = 2, 8
		h.senseLen = uint8(copy((*[64]byte)(h.sense)[:], descriptorSense(r)))
	}
	b.commands = append(b.commands, cdb[14])
	switch [2]byte{cdb[14], cdb[4]} {
	case [2]byte{0xe5, 0}:
		sense(b.power)
	case [2]byte{0xb0, 0xda}:
		sense(b.verdict)
	case [2]byte{0xb0, 0xd0}:
		want := [16]byte{0x85, 0x08, 0x0e, 0, 0xd0, 0, 1, 0, 0, 0, 0x4f, 0, 0xc2, 0, 0xb0, 0}
		if *cdb != want || h.direction != -3 || h.dataLen != 512 || h.interfaceID != 'S' {
			b.t.Errorf("command % x, header %+v", *cdb, h)
		}
		copy((*[512]byte)(h.data)[:], b.smart)
	default:
		b.t.Errorf("command % x is not one that only reads", *cdb)
	}
	return nil
}

func newBay(t *testing.T) *bay {
	return &bay{t: t, power: awake, verdict: fine, smart: smartFixture,
		nvmeSays: func(_ int, page *[512]byte) (uint32, error) { copy(page[:], healthLog()); return 0, nil }}
}

// newRoot is a /sys with an NVMe drive, a SATA one, and a disk that is neither.
func newRoot(t *testing.T) string {
	root := t.TempDir()
	for path, content := range map[string]string{
		"sys/class/nvme/nvme0/model":    "Fast Drive 2000                         \n",
		"sys/class/nvme/nvme0/serial":   "S0001               \n",
		"sys/block/sda/device/vendor":   "ATA     \n",
		"sys/block/sda/device/model":    "Big Drive 18TB  \n",
		"sys/block/sda/device/vpd_pg80": "\x00\x80\x00\x14            ZA123456",
		"sys/block/sdb/device/vendor":   "QEMU    \n",
	} {
		write(t, root, path, content)
	}
	return root
}

func write(t *testing.T, root, path, content string) {
	t.Helper()
	at := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func newDrives(t *testing.T, root string, c caller) *drives {
	t.Helper()
	s, err := open(root, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// read is what a source says, by name and label values.
func read(t *testing.T, s *drives) map[string]int64 {
	t.Helper()
	var f metric.Frame
	if err := s.Read(&f); err != nil {
		t.Fatal(err)
	}
	m := map[string]int64{}
	for _, s := range f.Schema.Series {
		m[strings.Join(append([]string{s.Desc.Name}, s.Values...), "|")] = int64(f.Values[s.Off])
	}
	return m
}

func wants(t *testing.T, got map[string]int64, want map[string]int64) {
	t.Helper()
	for key, value := range want {
		if g, ok := got[key]; !ok || g != value {
			t.Errorf("%s = %d, %v; want %d", key, g, ok, value)
		}
	}
}

func TestDescriptions(t *testing.T) {
	for _, d := range Samplers()[0].Descs {
		if err := d.Validate(); err != nil || d.Sampler != Samplers()[0].Name {
			t.Errorf("%s of %s: %v", d.Name, d.Sampler, err)
		}
	}
}

func TestDrives(t *testing.T) {
	b := newBay(t)
	got := read(t, newDrives(t, newRoot(t), b))
	wants(t, got, map[string]int64{
		"drive_temperature|nvme0|Fast Drive 2000|S0001|nvme":                    50,
		"drive_temperature_warning_time|nvme0|Fast Drive 2000|S0001|nvme":       31 * minute,
		"drive_thermal_throttle_time|nvme0|2|Fast Drive 2000|S0001|nvme":        44 * second,
		"drive_thermal_throttle_transitions|nvme0|1|Fast Drive 2000|S0001|nvme": 41,
		"drive_critical_warning|nvme0|Fast Drive 2000|read_only|S0001|nvme":     1,
		"drive_bytes|nvme0|Fast Drive 2000|write|S0001|nvme":                    102 * 512_000,
		"drive_sensor_temperature|nvme0|Fast Drive 2000|8|S0001|nvme":           -3,
		"drive_healthy|nvme0|Fast Drive 2000|S0001|nvme":                        0,
		"drive_read_failures|nvme0|Fast Drive 2000|timeout|S0001|nvme":          0,
		"drive_temperature|sda|Big Drive 18TB|ZA123456|sata":                    36,
		"drive_reallocated_sectors|sda|Big Drive 18TB|ZA123456|sata":            13,
		"drive_healthy|sda|Big Drive 18TB|ZA123456|sata":                        1,
		"drive_standby|sda|Big Drive 18TB|ZA123456|sata":                        0,
		"drive_read_failures|sda|Big Drive 18TB|error|ZA123456|sata":            0,
	})
	if n := len(healthLogMeans) + len(smartFixtureMeans) + 2 + 4; len(got) != n {
		t.Errorf("%d series, want %d", len(got), n)
	}
}

func TestADriveThatSleepsIsLeftAsleep(t *testing.T) {
	b := newBay(t)
	s := newDrives(t, newRoot(t), b)
	read(t, s)
	b.power.count, b.commands = 0, nil
	got := read(t, s)
	wants(t, got, map[string]int64{"drive_standby|sda|Big Drive 18TB|ZA123456|sata": 1})
	if _, there := got["drive_temperature|sda|Big Drive 18TB|ZA123456|sata"]; there || string(b.commands) != "\xe5" {
		t.Errorf("a drive in standby was asked % x", b.commands)
	}
	b.power, b.verdict = registers{status: 0x51}, registers{status: 0x50, mid: 0xf4, high: 0x2c}
	wants(t, read(t, s), map[string]int64{"drive_standby|sda|Big Drive 18TB|ZA123456|sata": 0, "drive_healthy|sda|Big Drive 18TB|ZA123456|sata": 0})
}

// TestAHungDriveDelaysNoOther has a drive that answers when it is told to.
func TestAHungDriveDelaysNoOther(t *testing.T) {
	b := newBay(t)
	root := newRoot(t)
	write(t, root, "sys/class/nvme/nvme1/model", "Stuck")
	release, answered := make(chan struct{}), make(chan struct{})
	b.nvmeSays = func(fd int, page *[512]byte) (uint32, error) {
		copy(page[:], healthLog())
		if fd == '1' {
			<-release
			defer func() { answered <- struct{}{} }()
		}
		return 0, nil
	}
	s := newDrives(t, root, b)
	s.wait = 500 * time.Millisecond
	const hung = "drive_read_failures|nvme1|Stuck|timeout||nvme"
	for i := range int64(3) {
		got := read(t, s)
		wants(t, got, map[string]int64{hung: i + 1, "drive_temperature|nvme0|Fast Drive 2000|S0001|nvme": 50, "drive_temperature|sda|Big Drive 18TB|ZA123456|sata": 36})
		if _, there := got["drive_temperature|nvme1|Stuck||nvme"]; there {
			t.Error("a drive that hangs has a temperature")
		}
	}
	// What it says at last is of long ago: the next read asks anew.
	close(release)
	<-answered
	s.wait = time.Minute
	go func() { <-answered }()
	wants(t, read(t, s), map[string]int64{hung: 3, "drive_temperature|nvme1|Stuck||nvme": 50})
}

func TestFailures(t *testing.T) {
	b := newBay(t)
	s := newDrives(t, newRoot(t), b)
	before := read(t, s)
	b.nvmeSays = func(int, *[512]byte) (uint32, error) { return 0x4002, nil }
	got := read(t, s)
	wants(t, got, map[string]int64{"drive_read_failures|nvme0|Fast Drive 2000|error|S0001|nvme": 1})
	if len(got) != len(before)-len(healthLogMeans) {
		t.Errorf("%d series of %d when NVMe answers an error", len(got), len(before))
	}
	b.smart = make([]byte, 100)
	b.smart[0] = 1
	if err := s.Read(&metric.Frame{}); !errors.Is(err, errChecksum) || !strings.Contains(err.Error(), "/dev/sda") {
		t.Errorf("no drive answers: %v", err)
	}
	d := device{caller: b, path: "/dev/denied"}
	if _, err := d.read(); !errors.Is(err, unix.EACCES) || !strings.Contains(err.Error(), "root") {
		t.Errorf("%v, want one that says what to do", err)
	}
}

func TestCountersThatFallBeginAnew(t *testing.T) {
	b := newBay(t)
	s := newDrives(t, newRoot(t), b)
	start := func() (at int64) {
		t.Helper()
		read(t, s)
		for _, e := range s.schema.Series {
			if e.Desc == descMedia && e.Values[0] == "nvme0" {
				return e.Start
			}
		}
		t.Fatal("no media errors")
		return 0
	}
	if at := start(); at != host.BootTime() {
		t.Errorf("began at %d, want at boot", at)
	}
	before := host.Wall()
	b.nvmeSays = func(_ int, page *[512]byte) (uint32, error) {
		copy(page[:], healthLog())
		page[160] = 1
		return 0, nil
	}
	if at := start(); at < before {
		t.Errorf("began at %d, after a reset at %d", at, before)
	}
}

func TestDrivesComeAndGo(t *testing.T) {
	root := newRoot(t)
	s := newDrives(t, root, newBay(t))
	read(t, s)
	first := s.schema
	write(t, root, "sys/class/nvme/nvme7/model", "New")
	s.next = 0
	wants(t, read(t, s), map[string]int64{"drive_temperature|nvme7|New||nvme": 50})
	if err := os.RemoveAll(filepath.Join(root, "sys/class/nvme/nvme7")); err != nil {
		t.Fatal(err)
	}
	s.next = 0
	if read(t, s); s.schema.Hash != first.Hash {
		t.Error("the schema is not what it was")
	}
}

func TestWithoutDrives(t *testing.T) {
	if _, err := open(t.TempDir(), kernel{}); !errors.Is(err, source.ErrUnsupported) {
		t.Errorf("%v, want %v", err, source.ErrUnsupported)
	}
}

func TestReadAllocatesNothing(t *testing.T) {
	b := newBay(t)
	root := newRoot(t)
	if err := os.RemoveAll(filepath.Join(root, "sys/block")); err != nil {
		t.Fatal(err) // the fake of SATA allocates
	}
	log := healthLog()
	b.nvmeSays = func(_ int, page *[512]byte) (uint32, error) { copy(page[:], log); return 0, nil }
	s := newDrives(t, root, b)
	var f metric.Frame
	if err := s.Read(&f); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		if err := s.Read(&f); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations in a read", n)
	}
}
