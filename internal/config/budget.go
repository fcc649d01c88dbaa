// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Budget is what the agent may cost: the process and its programs in the
// kernel together. What exceeds it is shed.
type Budget struct {
	CPU      Percent  `toml:"cpu"`      // of the CPU time of the whole machine
	Memory   Size     `toml:"memory"`   // resident, and in the kernel
	Interval Duration `toml:"interval"` // from one look at it to the next
}

// DefaultBudget is the budget of an empty file.
func DefaultBudget() Budget {
	return Budget{CPU: Percent{0.01}, Memory: 64 << 20, Interval: Duration(10 * time.Second)}
}

func (b Budget) check() error {
	switch i := time.Duration(b.Interval); {
	case b.CPU.Share <= 0 || b.CPU.Share > 1:
		return fmt.Errorf(` budget.cpu %v: want more than 0%% and at most 100%% of the machine; "100%%" sheds nothing`, b.CPU)
	case b.Memory < 16<<20:
		return fmt.Errorf(" budget.memory %v: want at least 16MiB", b.Memory)
	case i < 100*time.Millisecond || i > time.Hour:
		return fmt.Errorf(" budget.interval %v: want 100ms to 1h", i)
	}
	return nil
}

// Percent is a share, such as "0.5%". A number alone is refused: nobody could
// tell what of.
type Percent struct {
	Share float64 // of 1
}

// ParsePercent reads a number with the sign %.
func ParsePercent(text string) (Percent, error) {
	number, ok := strings.CutSuffix(strings.TrimSpace(text), "%")
	if ok {
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err == nil && v >= 0 && v <= 1e6 {
			return Percent{v / 100}, nil
		}
	}
	return Percent{}, fmt.Errorf(`%q is not a share; want a number with %%, such as "0.5%%" or "1%%"`, text)
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Percent) UnmarshalText(text []byte) error {
	v, err := ParsePercent(string(text))
	*p = v
	return err
}

// String is the share as it is written.
func (p Percent) String() string {
	return strconv.FormatFloat(100*p.Share, 'g', 6, 64) + "%"
}
