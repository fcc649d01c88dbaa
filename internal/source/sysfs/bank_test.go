// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// ofChip are the series of what is said that belong to a chip.
func ofChip(got map[string]float64, chip string) (n int) {
	for key := range got {
		if strings.Contains(key, " "+chip+" ") {
			n++
		}
	}
	return n
}

// TestAChipThatHangsDelaysNoOther has a label that is a pipe nobody writes to:
// who opens it waits.
func TestAChipThatHangsDelaysNoOther(t *testing.T) {
	f := newFake(t, hwmonFiles)
	f.write("sys/class/hwmon/hwmon2/name", "stuck")
	f.write("sys/class/hwmon/hwmon2/temp1_input", "31000")
	pipe := filepath.Join(f.root, "sys/class/hwmon/hwmon2/temp1_label")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	b := f.open("hwmon").(*bank)
	b.wait = 500 * time.Millisecond
	for range 2 {
		if got := read(t, b); ofChip(got, "stuck") != 0 || ofChip(got, "coretemp") != 5 || ofChip(got, "nct6775") != 10 {
			t.Errorf("while one chip hangs: %v", got)
		}
	}
	// It goes on: the next read asks it anew, and waits.
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(pipe); err != nil {
		t.Fatal(err)
	}
	w.Close()
	b.wait = time.Minute
	for hung := b.members[2]; len(hung.answer) == 0; {
		time.Sleep(time.Millisecond) // until the answer of before is there
	}
	if got := read(t, b); got["hwmon_temperature stuck hwmon2 temp1"] != 31 || ofChip(got, "coretemp") != 5 {
		t.Errorf("after it hung: %v", got)
	}
}

func TestChipsComeAndGo(t *testing.T) {
	f := newFake(t, hwmonFiles)
	b := f.open("hwmon").(*bank)
	read(t, b)
	first := b.schema
	f.write("sys/class/hwmon/hwmon9/name", "new")
	f.write("sys/class/hwmon/hwmon9/temp1_input", "1000")
	b.next = 0
	if got := read(t, b); got["hwmon_temperature new hwmon9 temp1"] != 1 {
		t.Errorf("a chip appeared, and there is %v", got)
	}
	f.remove("sys/class/hwmon/hwmon9")
	b.next = 0
	if read(t, b); b.schema.Hash != first.Hash {
		t.Error("a chip went, and the schema is not what it was")
	}
	f.remove("sys/class/hwmon")
	b.next = 0
	if err := b.Read(&metric.Frame{}); err == nil {
		t.Error("no chip is left, and a frame comes")
	}
}

// TestAChipThatMeasuresNothing is what a power supply of a laptop may be.
func TestAChipThatMeasuresNothing(t *testing.T) {
	f := newFake(t, map[string]string{"sys/class/hwmon/hwmon0/name": "AC"})
	if _, err := sampler(t, f.root, "hwmon").Open(); !errors.Is(err, source.ErrUnsupported) {
		t.Errorf("%v, want %v", err, source.ErrUnsupported)
	}
}
