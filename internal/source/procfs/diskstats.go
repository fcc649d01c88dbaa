// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// disks is the sampler of /proc/diskstats (Documentation/admin-guide/iostats.rst):
// every block device and its partitions.
const disks = "disk"

// maxDisks bounds the devices that are shown one by one.
const maxDisks = 256

func onDisk(name string, unit metric.Unit, help string, keys ...string) *metric.Desc {
	return counterOf(disks, "disk_"+name, unit, help, keys...)
}

var (
	diskOperations = onDisk("operations", metric.None, "operations completed, after merging; a flush that a program asked for is a write without bytes too", "device", "kind", "op")
	diskMerges     = onDisk("merges", metric.None, "operations that were merged into another that was waiting", "device", "kind", "op")
	diskBytes      = onDisk("bytes", metric.Bytes, "bytes read, written and discarded", "device", "kind", "op")
	diskTime       = onDisk("time", metric.Nanoseconds, "time of all operations together, from when each was made to its completion, in steps of 1 ms", "device", "kind", "op")
	diskInFlight   = gaugeOf(disks, "disk_in_flight", metric.None, "operations under way", "device", "kind")
	diskBusy       = onDisk("busy_time", metric.Nanoseconds, "time during which at least one operation was under way, as sampled by the kernel's tick", "device", "kind")
	diskQueueTime  = onDisk("queue_time", metric.Nanoseconds, "time weighted by the operations under way: its rate is the mean length of the queue", "device", "kind")
)

// Units of /proc/diskstats. A sector there is 512 bytes on every device.
const (
	sector      = 512
	millisecond = 1_000_000
)

// diskstatsColumns are the columns behind the name. The kernel computes times
// in 32 bits of milliseconds (block/genhd.c, diskstats_show), which is full
// after 50 days of them. Those of discards and flushes are in every kernel
// since 5.5.
var diskstatsColumns = []column{
	{desc: diskOperations, value: "read"}, {desc: diskMerges, value: "read"},
	{desc: diskBytes, value: "read", scale: sector}, {desc: diskTime, value: "read", scale: millisecond, wraps: true},
	{desc: diskOperations, value: "write"}, {desc: diskMerges, value: "write"},
	{desc: diskBytes, value: "write", scale: sector}, {desc: diskTime, value: "write", scale: millisecond, wraps: true},
	{desc: diskInFlight},
	{desc: diskBusy, scale: millisecond, wraps: true},
	{desc: diskQueueTime, scale: millisecond, wraps: true},
	{desc: diskOperations, value: "discard"}, {desc: diskMerges, value: "discard"},
	{desc: diskBytes, value: "discard", scale: sector}, {desc: diskTime, value: "discard", scale: millisecond, wraps: true},
	{desc: diskOperations, value: "flush"}, {desc: diskTime, value: "flush", scale: millisecond, wraps: true},
}

// diskstats is the source of /proc/diskstats.
type diskstats struct {
	file   *seqFile
	roster roster
}

// openDiskstats opens the file at path. class is /sys/class/block.
func openDiskstats(path, class string, limit int) (*diskstats, error) {
	file, err := openSeqFile(path)
	if err != nil {
		return nil, absent(err, "a kernel with block devices (CONFIG_BLOCK)")
	}
	return &diskstats{file, roster{source: disks, columns: diskstatsColumns, key: "device", limit: limit,
		look: func(d *device) { lookAtDisk(d, class) }}}, nil
}

// lookAtDisk finds out what the device is whose id is "major minor name". The
// mark is that of the disk's medium (Linux 5.15).
func lookAtDisk(d *device, class string) {
	major, rest, _ := strings.Cut(d.id, " ")
	name := rest[strings.LastIndexAny(rest, " \t")+1:]
	path := filepath.Join(class, strings.ReplaceAll(name, "/", "!")) // as in cciss/c0d0
	has := func(file string) bool {
		_, err := os.Stat(filepath.Join(path, file))
		return err == nil
	}
	d.label, d.kind, d.mark = name, "disk", firstLine(filepath.Join(path, "diskseq"))
	switch {
	case has("partition"):
		// The folder of a partition is in that of its disk.
		d.kind, d.mark = "partition", firstLine(path+"/../diskseq")
	case has("dm"):
		d.kind = "dm"
		if given := firstLine(filepath.Join(path, "dm/name")); given != "" {
			d.label = given
		}
	case has("md"):
		d.kind = "md"
	case major == "7": // Documentation/admin-guide/devices.txt
		d.kind = "loop"
	case major == "1", strings.HasPrefix(name, "zram"):
		d.kind = "ram"
	}
	d.quiet = d.kind == "loop" || d.kind == "ram"
}

// Name is "disk".
func (d *diskstats) Name() string { return disks }

// Read fills f, without allocating while the same devices are there.
func (d *diskstats) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	text, err := d.file.Read()
	f.End = host.Mono()
	if err != nil {
		return err
	}
	d.roster.begin()
	if err := parseDiskstats(&d.roster, text); err != nil {
		return fmt.Errorf("read /proc/diskstats: %w", err)
	}
	return d.roster.end(f)
}

var errDiskstats = errors.New("it is not as Documentation/admin-guide/iostats.rst has it")

// parseDiskstats reads the lines "major minor name 17 numbers". Numbers that
// newer kernels may add come after them.
func parseDiskstats(r *roster, text []byte) error {
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, newline)
		line = bytes.TrimLeft(line, " ")
		_, rest, ok := source.Number(line)
		if ok {
			_, rest, ok = source.Number(rest)
		}
		name, numbers := word(rest)
		if !ok || len(name) == 0 || !blank(rest[0]) {
			return errDiskstats
		}
		d := r.see(line[:len(line)-len(numbers)])
		for i := range d.now {
			if d.now[i], numbers, ok = source.Number(numbers); !ok {
				return errDiskstats
			}
		}
	}
	return nil
}

// Close closes the file.
func (d *diskstats) Close() error { return d.file.Close() }

func disksSampler() source.Sampler {
	return source.Sampler{Name: disks, Reads: "/proc/diskstats", Needs: "CONFIG_BLOCK", Descs: columnDescs(diskstatsColumns),
		Open: func() (source.Source, error) { return openDiskstats("/proc/diskstats", "/sys/class/block", maxDisks) }}
}
