// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// softnet is the sampler of how the CPUs get done with received packets:
// /proc/net/softnet_stat (net/core/net-procfs.c, softnet_seq_show). It is of
// the host, whatever the network namespace.
const softnet = "network_softnet"

func onSoftnet(name, help string) *metric.Desc {
	return counterOf(softnet, "softnet_"+name, packets, help, "id")
}

// softnetColumns are the columns of the file that are in use. 3 to 8 are always
// zero. The counters are 32 bits wide.
var softnetColumns = []struct {
	at int // of the file
	column
}{
	{0, column{wraps: true, desc: onSoftnet("processed", "packets received and processed by each CPU")}},
	{1, column{wraps: true, desc: onSoftnet("dropped", "packets dropped because the backlog of the CPU was full (net.core.netdev_max_backlog)")}},
	{2, column{wraps: true, desc: counterOf(softnet, "softnet_time_squeezed", metric.None,
		"times that processing was broken off with packets left (net.core.netdev_budget, netdev_budget_usecs)", "id")}},
	{9, column{wraps: true, desc: counterOf(softnet, "softnet_received_rps", metric.None,
		"times that another CPU woke this one to process packets (receive packet steering)", "id")}},
	{10, column{wraps: true, desc: onSoftnet("flow_limited", "packets dropped by the limit of one flow's share of the backlog (net.core.flow_limit_cpu_bitmap)")}},
	{11, column{desc: gaugeOf(softnet, "softnet_backlog", packets, "packets in the backlog of each CPU", "id")}},
}

// softnetCPU is the column with the number of the CPU. Kernels that have it not
// have no backlog either, and a line for each CPU that is online.
const softnetCPU = 12

// softnetStat is the source of /proc/net/softnet_stat.
type softnetStat struct {
	file   *seqFile
	roster roster
	online func() []int
	id     []byte // scratch
}

// openSoftnet opens softnet_stat in dir, which is /proc/net or that of a task.
func openSoftnet(dir string) (*softnetStat, error) {
	file, err := openSeqFile(filepath.Join(dir, "softnet_stat"))
	if err != nil {
		return nil, absent(err, "a kernel with networking (CONFIG_NET)")
	}
	s := &softnetStat{file: file, online: host.Online}
	s.roster = roster{source: softnet, key: "id", limit: math.MaxInt, look: func(d *device) { d.label = d.id }}
	text, err := file.Read()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	line, _, _ := bytes.Cut(text, newline)
	columns := (len(line) + 1) / hexWidth
	for _, c := range softnetColumns {
		if c.at < columns && (c.desc.Kind == metric.Counter || softnetCPU < columns) {
			s.roster.columns = append(s.roster.columns, c.column)
		}
	}
	return s, nil
}

// hexWidth is how many bytes a column takes, with the blank behind it.
const hexWidth = len("00000000 ")

// Name is "network_softnet".
func (s *softnetStat) Name() string { return softnet }

// Read fills f, without allocating while the same CPUs are online.
func (s *softnetStat) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	text, err := s.file.Read()
	f.End = host.Mono()
	if err != nil {
		return err
	}
	s.roster.begin()
	if err := s.parse(text); err != nil {
		return fmt.Errorf("read %s/softnet_stat: %w", netDir, err)
	}
	return s.roster.end(f)
}

var errSoftnet = errors.New("lines are not of hexadecimal numbers of eight digits")

func (s *softnetStat) parse(text []byte) error {
	for line := 0; len(text) > 0; line++ {
		var numbers []byte
		numbers, text, _ = bytes.Cut(text, newline)
		if (len(numbers)+1)%hexWidth != 0 {
			return errSoftnet
		}
		cpu, ok := hexColumn(numbers, softnetCPU)
		if !ok {
			online := s.online()
			if line >= len(online) {
				return errSoftnet
			}
			cpu = uint64(online[line])
		}
		s.id = strconv.AppendUint(s.id[:0], cpu, 10)
		d, next := s.roster.see(s.id), 0
		for i := range softnetColumns {
			if next == len(d.now) {
				break
			}
			if d.now[next], ok = hexColumn(numbers, softnetColumns[i].at); !ok {
				return errSoftnet
			}
			next++
		}
	}
	return nil
}

// hexColumn is the number in a column of a line.
func hexColumn(line []byte, column int) (n uint64, ok bool) {
	at := column * hexWidth
	if at+hexWidth-1 > len(line) {
		return 0, false
	}
	for _, c := range line[at : at+hexWidth-1] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		default:
			return 0, false
		}
		n = n<<4 | uint64(c)
	}
	return n, true
}

// Close closes the file.
func (s *softnetStat) Close() error { return s.file.Close() }

func softnetSampler() source.Sampler {
	descs := make([]*metric.Desc, len(softnetColumns))
	for i, c := range softnetColumns {
		descs[i] = c.desc
	}
	return source.Sampler{Name: softnet, Reads: netDir + "/softnet_stat", Needs: "CONFIG_NET; the backlog Linux 5.14", Descs: descs,
		Open: func() (source.Source, error) { return openSoftnet(netDir) }}
}
