// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rezolus/internal/metric"
)

// softnetLine has the given numbers in hexadecimal.
func softnetLine(numbers ...uint32) string {
	var words []string
	for _, n := range numbers {
		words = append(words, fmt.Sprintf("%08x", n))
	}
	return strings.Join(words, " ") + "\n"
}

func fakeSoftnet(t *testing.T, text string, online ...int) (s *softnetStat, path string) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir+"/softnet_stat", text)
	s = opened[*softnetStat](t)(openSoftnet(dir))
	s.online = func() []int { return online }
	return s, dir + "/softnet_stat"
}

// TestSoftnetColumns has a different number in each column, so that no other
// is taken for it.
func TestSoftnetColumns(t *testing.T) {
	s, path := fakeSoftnet(t, softnetLine(0xabcdef01, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 5, 13, 14)+
		softnetLine(21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 7, 33, 34))
	want := map[string]uint64{"softnet_processed 5": 0xabcdef01, "softnet_dropped 5": 2, "softnet_time_squeezed 5": 3,
		"softnet_received_rps 5": 10, "softnet_flow_limited 5": 11, "softnet_backlog 5": 12,
		"softnet_processed 7": 21, "softnet_dropped 7": 22, "softnet_time_squeezed 7": 23,
		"softnet_received_rps 7": 30, "softnet_flow_limited 7": 31, "softnet_backlog 7": 32}
	if got := says(t, s); !equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	// A counter of 32 bits is full; CPU 7 went offline.
	write(t, path, softnetLine(0x00000002, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 5, 13, 14))
	expect(t, says(t, s), map[string]int64{"softnet_processed 5": 1<<32 + 2, "softnet_backlog 5": 0, "softnet_processed 7": -1})
}

// TestSoftnetOfOlderKernels has no column for the CPU.
func TestSoftnetOfOlderKernels(t *testing.T) {
	s, _ := fakeSoftnet(t, softnetLine(1, 2, 3, 0, 0, 0, 0, 0, 0, 4, 5)+softnetLine(6, 7, 8, 0, 0, 0, 0, 0, 0, 9, 10), 0, 3)
	got := says(t, s)
	expect(t, got, map[string]int64{"softnet_processed 0": 1, "softnet_flow_limited 0": 5, "softnet_processed 3": 6, "softnet_received_rps 3": 9})
	if len(got) != 10 {
		t.Errorf("read %v", got)
	}
}

func TestOtherFormsOfSoftnetAreErrors(t *testing.T) {
	s, path := fakeSoftnet(t, softnetLine(1, 2, 3, 0, 0, 0, 0, 0, 0, 4, 5), 0)
	for _, text := range []string{"0\n", "0000000g 00000000\n", softnetLine(1, 2), softnetLine(1, 2, 3, 0, 0, 0, 0, 0, 0, 4, 5) + softnetLine(1, 2, 3, 0, 0, 0, 0, 0, 0, 4, 5)} {
		write(t, path, text)
		if err := s.Read(&metric.Frame{}); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// TestPacketsAreProcessed sends 10,007 datagrams over loopback on one CPU,
// which takes each from its backlog. Other traffic of the machine is processed
// too.
func TestPacketsAreProcessed(t *testing.T) {
	newNamespace(t)
	runtime.LockOSThread()
	const cpu, n = 1, 10_007
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	s := opened[*softnetStat](t)(openSoftnet(threadNet))
	receiver, address := udp(t, unix.AF_INET)
	sender, _ := udp(t, unix.AF_INET)
	before := says(t, s)
	buf := make([]byte, 16)
	for range n {
		if err := unix.Sendto(sender, []byte("x"), 0, address); err != nil {
			t.Fatal(err)
		}
		if _, _, err := unix.Recvfrom(receiver, buf, 0); err != nil {
			t.Fatal(err)
		}
	}
	got := grown(before, says(t, s))
	if processed := got["softnet_processed "+strconv.Itoa(cpu)]; processed < n || processed > 10*n {
		t.Errorf("CPU %d processed %d packets, want %d and what others sent", cpu, processed, n)
	}
	expect(t, got, map[string]int64{"softnet_dropped 1": 0})
	allocates(t, s)
}

func FuzzSoftnet(f *testing.F) {
	f.Add([]byte(softnetLine(1, 2, 3, 0, 0, 0, 0, 0, 0, 4, 5, 6, 7, 8, 9)))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := softnetStat{online: func() []int { return []int{0, 1} },
			roster: roster{source: softnet, key: "id", limit: 10, look: func(d *device) { d.label = d.id }}}
		for _, c := range softnetColumns {
			s.roster.columns = append(s.roster.columns, c.column)
		}
		s.roster.begin()
		if s.parse(b) != nil {
			return
		}
		var frame metric.Frame
		if err := s.roster.end(&frame); err != nil || len(frame.Values) < min(len(s.roster.order), 10)*len(softnetColumns) {
			t.Errorf("%d CPUs, %d words: %v", len(s.roster.order), len(frame.Values), err)
		}
	})
}

func BenchmarkSoftnet(b *testing.B) {
	benchmark(b, opened[*softnetStat](b)(openSoftnet(netDir)))
}
