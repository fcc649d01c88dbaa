// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration is a time such as "1s", "100ms" or "1h 30m".
type Duration time.Duration

// durationUnits are the original's, with their long names.
var durationUnits = map[string]time.Duration{
	"ns": time.Nanosecond, "nsec": time.Nanosecond, "us": time.Microsecond, "usec": time.Microsecond,
	"ms": time.Millisecond, "msec": time.Millisecond, "s": time.Second, "sec": time.Second, "second": time.Second,
	"seconds": time.Second, "m": time.Minute, "min": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hour": time.Hour, "hours": time.Hour, "d": 24 * time.Hour, "day": 24 * time.Hour,
	"days": 24 * time.Hour,
}

// ParseDuration reads a duration: numbers, each with a unit, added up.
func ParseDuration(text string) (time.Duration, error) {
	wrong := fmt.Errorf("%q is not a duration; want a number with a unit, such as 10ms, 1s or 1h 30m", text)
	rest := strings.TrimSpace(text)
	if rest == "" {
		return 0, wrong
	}
	var sum float64
	for rest != "" {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789."))
		n, err := strconv.ParseFloat(rest[:digits], 64)
		if err != nil {
			return 0, wrong
		}
		rest = strings.TrimLeft(rest[digits:], " ")
		letters := len(rest) - len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyz"))
		unit, ok := durationUnits[rest[:letters]]
		if !ok {
			return 0, wrong
		}
		rest = strings.TrimLeft(rest[letters:], " ")
		sum += n * float64(unit)
	}
	if sum > float64(1<<62) {
		return 0, wrong
	}
	return time.Duration(sum), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// Size is a number of bytes such as "16MiB".
type Size int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}}

// ParseSize reads a number of bytes with its unit.
func ParseSize(text string) (Size, error) {
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(strings.TrimSpace(text), u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err == nil && n >= 0 && n*float64(u.bytes) < 1<<62 {
			return Size(n * float64(u.bytes)), nil
		}
	}
	return 0, fmt.Errorf("%q is not a size; want a number with a unit, such as 512KiB, 16MiB or 1GB", text)
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(text []byte) error {
	v, err := ParseSize(string(text))
	*s = v
	return err
}

// String is the size in the largest unit that it is a whole number of.
func (s Size) String() string {
	for _, u := range []int{2, 1, 0} {
		if b := sizeUnits[u].bytes; s != 0 && int64(s)%b == 0 {
			return fmt.Sprintf("%d%s", int64(s)/b, sizeUnits[u].name)
		}
	}
	return fmt.Sprintf("%dB", int64(s))
}
