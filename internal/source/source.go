// SPDX-License-Identifier: Apache-2.0

// Package source is what the sources below it share: how a sampler that is no
// probe says what it is, and how a file of the kernel is read again and again.
package source

import (
	"errors"
	"fmt"
	"time"

	"rezolus/internal/metric"
)

// Source is anything that is read, as the agent wants it (agent.Source).
type Source interface {
	Name() string
	Read(f *metric.Frame) error
	Close() error
}

// Sampler is a switch of the configuration and the one source behind it.
type Sampler struct {
	Name  string // the switch, and the name of the source
	Reads string // what is read, for people: "/proc/meminfo"
	Needs string // what the kernel must have or be built with; empty: any since 5.10
	// Every bounds how often it is read, because a read is dear or because
	// the kernel itself updates no faster. 0: at every tick.
	Every    time.Duration
	Blocking bool // a read may hang (a device, the network): never in the tick
	// Off: it is off unless the configuration turns it on.
	Off   bool
	Descs []*metric.Desc // all it can publish, for docs/metrics.md
	// Open makes the source. An error that wraps ErrUnsupported is no
	// defect: this machine does not have what is read.
	Open func() (Source, error)
}

// ErrUnsupported says that a machine does not have what a sampler reads.
var ErrUnsupported = errors.New("unsupported here")

// Unsupported is an error that wraps ErrUnsupported and says why.
func Unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnsupported}, args...)...)
}
