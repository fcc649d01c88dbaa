// SPDX-License-Identifier: Apache-2.0

// Package gpu reads what GPUs tell of themselves: NVIDIA's by its management
// library (NVML), which is loaded when the machine has it, AMD's by what their
// kernel driver has in sysfs. Metrics of both have the same names, and the
// label vendor.
package gpu

import (
	"errors"
	"slices"
	"time"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// Samplers are the samplers of this package.
func Samplers() []source.Sampler {
	nvidia, amd := newTable("gpu_nvidia"), newTable("gpu_amd")
	return []source.Sampler{
		{
			Name: "gpu_nvidia", Reads: "libnvidia-ml.so.1", Needs: "an NVIDIA GPU and its driver; what is measured by GPM a Hopper or later",
			// The library takes 20 ms for each direction of PCIe alone,
			// and hangs where a GPU does.
			Every: time.Second, Blocking: true,
			Descs: nvidia.descs(nvidiaReadings()...),
			Open:  func() (source.Source, error) { return openNVIDIA("/", nvidia) },
		},
		{
			Name: "gpu_amd", Reads: "/sys/class/drm/card*/device", Needs: "an AMD GPU and the driver amdgpu",
			// Each file is a question to the GPU's firmware.
			Every: time.Second, Blocking: true,
			Descs: amd.descs(amdReadings()...),
			Open:  func() (source.Source, error) { return openAMD("/", amd) },
		},
	}
}

// gpus is a source of GPUs of one vendor.
type gpus struct {
	name   string
	table  *table
	all    []*gpu
	ask    func(i int, g *gpu) error // sets what g has
	end    func() error
	schema *metric.Schema
}

// Name is the sampler's.
func (s *gpus) Name() string { return s.name }

// Read asks every GPU. One that says nothing is not in the frame.
func (s *gpus) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	changed, good := s.schema == nil, 0
	var failed error
	for i, g := range s.all {
		clear(g.has[:])
		if err := s.ask(i, g); err != nil {
			failed = err
		}
		changed = g.settle(s.table) || changed
		if slices.Contains(g.has[:], true) {
			good++
		}
	}
	f.End = host.Mono()
	if good == 0 {
		return errors.Join(errors.New(s.name+": no GPU says anything"), failed)
	}
	if changed {
		if err := s.rebuild(); err != nil {
			return err
		}
	}
	f.Schema, f.Lost = s.schema, 0
	f.Resize(s.schema.Words)
	to := f.Values[:0]
	for _, g := range s.all {
		to = g.appendValues(to)
	}
	return nil
}

func (s *gpus) rebuild() (err error) {
	var all []metric.Series
	for _, g := range s.all {
		all = append(all, g.series(s.table)...)
	}
	s.schema, err = metric.NewSchema(s.name, all)
	return err
}

// Close ends the session with the driver.
func (s *gpus) Close() error { return s.end() }
