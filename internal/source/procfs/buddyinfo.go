// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

const buddyinfo = "memory_buddyinfo"

var freeBlocks = gaugeOf(buddyinfo, "memory_free_blocks", metric.None,
	"free blocks of 2^order pages; few of a high order mean that memory is fragmented", "node", "order", "zone")

// Buddyinfo is the source of /proc/buddyinfo: the free blocks of each zone by
// size (Documentation/filesystems/proc.rst).
type Buddyinfo struct {
	file   *seqFile
	zones  []zoneLine
	schema *metric.Schema
}

type zoneLine struct {
	head   []byte // "Node 0, zone   Normal"
	orders int
}

// NewBuddyinfo opens the file at path.
func NewBuddyinfo(path string) (*Buddyinfo, error) {
	file, err := openSeqFile(path)
	if err != nil {
		return nil, err
	}
	return &Buddyinfo{file: file}, nil
}

// Name is "memory_buddyinfo".
func (s *Buddyinfo) Name() string { return buddyinfo }

// Read fills f, without allocating while there are the same zones.
func (s *Buddyinfo) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	text, err := s.file.Read()
	f.End = host.Mono()
	if err != nil {
		return err
	}
	if s.schema != nil {
		f.Resize(s.schema.Words)
	}
	if s.schema == nil || !s.parse(text, f.Values[:0]) {
		if err := s.learn(text); err != nil {
			return err
		}
		f.Resize(s.schema.Words)
		if !s.parse(text, f.Values[:0]) {
			return fmt.Errorf("%w: %q", errBuddyinfo, text)
		}
	}
	f.Schema, f.Lost = s.schema, 0
	return nil
}

// parse appends the blocks of a file that has the known zones, and is false
// for another.
func (s *Buddyinfo) parse(text []byte, to []uint64) bool {
	for _, z := range s.zones {
		rest, is := bytes.CutPrefix(text, z.head)
		if !is {
			return false
		}
		for range z.orders {
			n, after, ok := source.Number(rest)
			if !ok {
				return false
			}
			to, rest = append(to, n), after
		}
		line, after, _ := bytes.Cut(rest, newline)
		if len(bytes.TrimSpace(line)) > 0 {
			return false
		}
		text = after
	}
	return len(text) == 0
}

var errBuddyinfo = errors.New("/proc/buddyinfo is not as Documentation/filesystems/proc.rst has it")

// maxOrders is above the number of orders of any kernel (MAX_ORDER).
const maxOrders = 64

// learn makes the schema of the zones of a file.
func (s *Buddyinfo) learn(text []byte) error {
	s.zones, s.schema = nil, nil
	var series []metric.Series
	known := map[string]bool{}
	for line := range bytes.Lines(text) {
		words := bytes.Fields(line) // Node 0, zone Normal 4459 4052 ...
		if len(words) < 5 || len(words) > 4+maxOrders || string(words[0]) != "Node" || string(words[2]) != "zone" {
			return fmt.Errorf("%w: %q", errBuddyinfo, line)
		}
		node, zone := string(bytes.TrimSuffix(words[1], []byte(","))), string(words[3])
		if known[node+" "+zone] {
			return fmt.Errorf("%w: zone %s of node %s is there twice", errBuddyinfo, zone, node)
		}
		known[node+" "+zone] = true
		at := bytes.Index(line, words[3]) + len(words[3])
		s.zones = append(s.zones, zoneLine{slices.Clone(line[:at]), len(words) - 4})
		for order := range len(words) - 4 {
			series = append(series, metric.Series{Desc: freeBlocks, Values: []string{node, strconv.Itoa(order), zone}})
		}
	}
	if len(s.zones) == 0 {
		return errBuddyinfo
	}
	schema, err := metric.NewSchema(s.Name(), series)
	s.schema = schema
	return err
}

// Close closes the file.
func (s *Buddyinfo) Close() error { return s.file.Close() }

// A read takes 3 us, but holds the lock of each zone as it looks at it
// (BenchmarkSamplers).
func buddyinfoSampler() source.Sampler {
	return source.Sampler{Name: buddyinfo, Reads: "/proc/buddyinfo", Every: time.Second,
		Descs: []*metric.Desc{freeBlocks},
		Open:  func() (source.Source, error) { return NewBuddyinfo("/proc/buddyinfo") }}
}
