// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"bytes"
	"errors"
	"slices"
	"strconv"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// info is the source of /proc/cpuinfo, for clock rates where there is no
// cpufreq driver, as in virtual machines.
type info struct {
	file   *source.File
	schema *metric.Schema
	shown  []int // CPUs of the schema
	cpus   []int // CPUs as they were read last
	rates  []uint64
}

var errInfo = errors.New("/proc/cpuinfo has no processor with cpu MHz")

func openInfo(path string) (*info, error) {
	file, err := source.OpenFile(path)
	if err != nil {
		return nil, err
	}
	s := &info{file: file}
	text, err := file.Read()
	if err == nil {
		err = s.parse(text)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return s, nil
}

// Name is the sampler's.
func (s *info) Name() string { return "cpufreq" }

// Read reads the file and allocates nothing while the same CPUs are online.
func (s *info) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	text, err := s.file.Read()
	f.End = host.Mono()
	if err != nil {
		return err
	}
	if err := s.parse(text); err != nil {
		return err
	}
	if s.schema == nil || !slices.Equal(s.cpus, s.shown) {
		if err := s.rebuild(); err != nil {
			return err
		}
	}
	f.Schema, f.Lost = s.schema, 0
	f.Resize(s.schema.Words)
	copy(f.Values, s.rates)
	return nil
}

func (s *info) rebuild() (err error) {
	s.shown = slices.Clone(s.cpus)
	series := make([]metric.Series, len(s.shown))
	for i, cpu := range s.shown {
		series[i] = metric.Series{Desc: cpuFrequency, Values: []string{strconv.Itoa(cpu), "cpuinfo"}}
	}
	s.schema, err = metric.NewSchema(s.Name(), series)
	return err
}

var (
	newline   = []byte("\n")
	colon     = []byte(":")
	processor = []byte("processor")
	megahertz = []byte("cpu MHz")
)

// maxCPU is above the number of any CPU there will be (NR_CPUS is 8,192 at
// most).
const maxCPU = 1 << 16

// parse reads the lines "processor : N" and "cpu MHz : N.NNN" of each CPU
// (arch/x86/kernel/cpu/proc.c).
func (s *info) parse(text []byte) error {
	s.cpus, s.rates = s.cpus[:0], s.rates[:0]
	cpu := uint64(maxCPU)
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, newline)
		key, value, _ := bytes.Cut(line, colon)
		switch key = bytes.TrimSpace(key); {
		case bytes.Equal(key, processor):
			n, _, ok := source.Number(value)
			if !ok || n >= maxCPU || len(s.cpus) > 0 && int(n) <= s.cpus[len(s.cpus)-1] {
				return errInfo
			}
			cpu = n
		case bytes.Equal(key, megahertz) && cpu < maxCPU:
			rate, ok := milli(value)
			if !ok {
				return errInfo
			}
			s.cpus, s.rates = append(s.cpus, int(cpu)), append(s.rates, rate*1000)
			cpu = maxCPU
		}
	}
	if len(s.cpus) == 0 {
		return errInfo
	}
	return nil
}

// milli is a decimal number with three digits after the point, in thousandths.
func milli(b []byte) (uint64, bool) {
	whole, b, ok := source.Number(b)
	if !ok || len(b) != 4 || b[0] != '.' || whole > 1e9 {
		return 0, false
	}
	part, rest, ok := source.Number(b[1:])
	return whole*1000 + part, ok && len(rest) == 0 && b[1] != ' '
}

// Close closes the file.
func (s *info) Close() error { return s.file.Close() }
