// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"io/fs"

	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// Units of this package beyond those that package metric names.
const (
	pages = metric.Unit("pages")
	ratio = metric.Unit("ratio")
)

func counterOf(sampler, name string, unit metric.Unit, help string, keys ...string) *metric.Desc {
	return &metric.Desc{Name: name, Help: help, Unit: unit, Kind: metric.Counter, Keys: keys, Sampler: sampler}
}

func gaugeOf(sampler, name string, unit metric.Unit, help string, keys ...string) *metric.Desc {
	return &metric.Desc{Name: name, Help: help, Unit: unit, Kind: metric.Gauge, Keys: keys, Sampler: sampler}
}

func floatOf(sampler, name string, unit metric.Unit, help string, keys ...string) *metric.Desc {
	return &metric.Desc{Name: name, Help: help, Unit: unit, Kind: metric.Gauge, Float: true, Keys: keys, Sampler: sampler}
}

// absent makes the error of a file that is not there, or that the kernel does
// not serve, one that says what the machine lacks.
func absent(err error, needs string) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errors.ErrUnsupported) {
		return source.Unsupported("%w; it needs %s", err, needs)
	}
	return err
}
