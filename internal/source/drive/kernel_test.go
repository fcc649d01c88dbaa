// SPDX-License-Identifier: Apache-2.0

package drive

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rezolus/internal/source"
)

// TestThisMachine reads the drives there are, if any. What QEMU's say is known,
// and test/vm has both kinds (ATA on amd64).
func TestThisMachine(t *testing.T) {
	opened, err := Samplers()[0].Open()
	if errors.Is(err, source.ErrUnsupported) {
		if there, _ := filepath.Glob("/sys/class/nvme/nvme*"); len(there) > 0 {
			t.Errorf("%v, and there is %q", err, there)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	got := read(t, opened.(*drives))
	for key, value := range got {
		if strings.HasPrefix(key, "drive_temperature|") && (value < -40 || value > 120) {
			t.Errorf("%s = %d degrees", key, value)
		}
	}
	kinds := map[string]int{}
	for _, w := range opened.(*drives).workers {
		kinds[w.kind]++
		switch w.model {
		case "QEMU NVMe Ctrl":
			testEmulated(t, opened.(*drives), w.identity)
		case "QEMU HARDDISK":
			// hw/ide/core.c: attribute 190 has 31 degrees, attribute 5
			// no sectors.
			at := strings.Join([]string{w.device, w.model, w.serial, w.kind}, "|")
			wants(t, got, map[string]int64{"drive_temperature|" + at: 31, "drive_healthy|" + at: 1, "drive_standby|" + at: 0,
				"drive_reallocated_sectors|" + at: 0})
		}
	}
	if t.Logf("%d series of drives: %v", len(got), kinds); os.Getenv("REZOLUS_VM") != "" {
		if kinds["nvme"] == 0 || kinds["sata"] == 0 && runtime.GOARCH == "amd64" {
			t.Errorf("drives by kind: %v, want both", kinds)
		}
	}
}

// testEmulated compares a drive with what hw/nvme/ctrl.c of QEMU says, and
// reads from it, which it must count: 97 units of 512,000 bytes, in at least
// as many commands.
func testEmulated(t *testing.T, s *drives, id identity) {
	key := func(name string, extra ...string) string {
		keys := append([]string{name, id.device, id.model}, extra...)
		return strings.Join(append(keys, id.serial, id.kind), "|")
	}
	before := read(t, s)
	wants(t, before, map[string]int64{
		key("drive_temperature"): 50, key("drive_healthy"): 1, key("drive_wear"): 0, key("drive_media_errors"): 0,
		key("drive_power_on_time"): 0, key("drive_read_failures", "error"): 0, key("drive_read_failures", "timeout"): 0,
	})
	const units, unit = 97, 512_000
	readDrive(t, "/dev/"+id.device+"n1", units, unit)
	after := read(t, s)
	if d := after[key("drive_bytes", "read")] - before[key("drive_bytes", "read")]; d < (units-1)*unit || d > (units+1)*unit {
		t.Errorf("%s: %d bytes were read, and the drive counts %d", id.device, units*unit, d)
	}
	if d := after[key("drive_commands", "read")] - before[key("drive_commands", "read")]; d < units || d > 20*units {
		t.Errorf("%s: %d reads, and the drive counts %d", id.device, units, d)
	}
}

// readDrive reads the first size bytes n times past the page cache.
func readDrive(t *testing.T, path string, n, size int) {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	buf, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(buf)
	for range n {
		if got, err := unix.Pread(fd, buf, 0); got != size {
			t.Fatalf("read %d of %d bytes: %v", got, size, err)
		}
	}
}
