// SPDX-License-Identifier: Apache-2.0

// Package config reads the agent's configuration: TOML, in the keys of the
// original Rezolus where they mean the same, with defaults for everything. An
// empty file is a good one; a key that is not known is an error that says
// which was meant.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// DefaultProbes is where a user's probes are looked for.
const DefaultProbes = "/etc/rezolus/probes.d"

// Config is the agent's configuration.
type Config struct {
	General   General            `toml:"general"`
	Log       Log                `toml:"log"`
	Window    Window             `toml:"window"`
	Budget    Budget             `toml:"budget"`
	Hindsight Hindsight          `toml:"hindsight"`
	Cgroups   Cgroups            `toml:"cgroups"`
	Probes    Probes             `toml:"probes"`
	External  External           `toml:"external"`
	Scrape    []Scrape           `toml:"scrape"`
	Functions []Function         `toml:"functions"`
	Defaults  Sampler            `toml:"defaults"`
	Samplers  map[string]Sampler `toml:"samplers"`
}

// General is what is about the agent as a whole.
type General struct {
	Listen   string   `toml:"listen"`   // host:port
	TTL      Duration `toml:"ttl"`      // how old a scrape's values may be
	Interval Duration `toml:"interval"` // from one tick of the live window to the next
	BTFPath  string   `toml:"btf_path"` // BTF of this kernel, where it has none of its own
	// Realtime is the longest interval whose ticks go before the machine's
	// other work; 0: none do.
	Realtime Duration `toml:"realtime"`
	// WebConfig is a file of exporter-toolkit's form, with TLS and passwords.
	WebConfig string `toml:"web_config"`
}

// Log is what is said on standard error.
type Log struct {
	Level string `toml:"level"` // error, warn, info, debug or trace
}

// Window is the live window.
type Window struct {
	Memory Size `toml:"memory"`
}

// Cgroups bounds the control groups that are told apart.
type Cgroups struct {
	Max int `toml:"max"`
}

// Probes says where a user's own are.
type Probes struct {
	Directory string `toml:"directory"`
}

// External is the socket on which other programs push metrics, once the
// sampler external is on.
type External struct {
	Path  string   `toml:"path"`
	Group string   `toml:"group"` // that may connect; empty: the agent's own
	TTL   Duration `toml:"ttl"`   // of a series after its last update
}

// Scrape is an endpoint whose metrics are read.
type Scrape struct {
	URL      string   `toml:"url"`
	Name     string   `toml:"name"`   // value of the label endpoint; empty: host:port
	Prefix   string   `toml:"prefix"` // of every name
	Interval Duration `toml:"interval"`
	Timeout  Duration `toml:"timeout"`
	Counters []string `toml:"counters"` // names that only grow, of a JSON document
}

// Sampler switches metrics on or off.
type Sampler struct {
	Enabled *bool `toml:"enabled"`
	// Interval is how often it is read at most; 0: as is best for it.
	Interval Duration `toml:"interval"`
}

// Default is the configuration of an empty file.
func Default() *Config {
	return &Config{
		General: General{Listen: "127.0.0.1:4241", TTL: Duration(10 * time.Millisecond), Interval: Duration(time.Second),
			Realtime: Duration(10 * time.Millisecond)},
		Log:       Log{Level: "info"},
		Window:    Window{Memory: 8 << 20},
		Budget:    DefaultBudget(),
		Hindsight: DefaultHindsight(),
		Cgroups:   Cgroups{Max: 1024},
		Probes:    Probes{Directory: DefaultProbes},
		External:  External{Path: "/run/rezolus/external.sock", TTL: Duration(time.Minute)},
	}
}

// Read reads the file at path.
func Read(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	c, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s:%w", path, err)
	}
	if c.Probes.Directory != DefaultProbes {
		if _, err := os.Stat(c.Probes.Directory); err != nil {
			return nil, fmt.Errorf("%s: probes.directory: %w", path, err)
		}
	}
	return c, nil
}

// Parse reads a configuration. The error begins with the line it is about.
func Parse(text []byte) (*Config, error) {
	c := Default()
	d := toml.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(c); err != nil {
		return nil, explain(err)
	}
	return c, c.check()
}

// check holds what a type cannot.
func (c *Config) check() error {
	if _, _, err := net.SplitHostPort(c.General.Listen); err != nil {
		return fmt.Errorf(" general.listen %q: want host:port, such as 127.0.0.1:4241", c.General.Listen)
	}
	if i := time.Duration(c.General.Interval); i < time.Millisecond || i > time.Hour {
		return fmt.Errorf(" general.interval %v: want 1ms to 1h", i)
	}
	if time.Duration(c.General.TTL) < 0 {
		return fmt.Errorf(" general.ttl %v is negative", time.Duration(c.General.TTL))
	}
	if i := time.Duration(c.General.Realtime); i < 0 || i > time.Second {
		return fmt.Errorf(" general.realtime %v: want 0s to 1s", i)
	}
	if _, err := c.Log.SlogLevel(); err != nil {
		return err
	}
	if c.Window.Memory < 1<<20 || c.Window.Memory > 16<<30 {
		return fmt.Errorf(" window.memory %v: want 1MiB to 16GiB", c.Window.Memory)
	}
	if err := c.Budget.check(); err != nil {
		return err
	}
	if err := c.Hindsight.check("hindsight"); err != nil {
		return err
	}
	if c.Cgroups.Max < 1 || c.Cgroups.Max > 65536 {
		return fmt.Errorf(" cgroups.max %d: want 1 to 65536", c.Cgroups.Max)
	}
	for name, s := range c.Samplers {
		if i := time.Duration(s.Interval); i != 0 && (i < time.Millisecond || i > time.Hour) {
			return fmt.Errorf(" samplers.%s.interval %v: want 1ms to 1h", name, i)
		}
	}
	if i := time.Duration(c.Defaults.Interval); i != 0 {
		return fmt.Errorf(" defaults.interval %v: each sampler has a default of its own; set it under [samplers.NAME]", i)
	}
	if ttl := time.Duration(c.External.TTL); ttl < time.Second || ttl > 24*time.Hour {
		return fmt.Errorf(" external.ttl %v: want 1s to 24h", ttl)
	}
	if err := c.checkFunctions(); err != nil {
		return err
	}
	if c.General.BTFPath != "" {
		if _, err := os.Stat(c.General.BTFPath); err != nil {
			return fmt.Errorf(" general.btf_path: %w", err)
		}
	}
	return nil
}

// CheckSamplers refuses switches of samplers that do not exist, in the order
// of their names. known are those of the probes that were found.
func (c *Config) CheckSamplers(known []string) error {
	var errs []error
	for name := range c.Samplers {
		if !slices.Contains(known, name) {
			errs = append(errs, fmt.Errorf("[samplers.%s]: no such sampler%s", name, didYouMean(name, known)))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// Enabled tells whether a sampler is on: its own switch, else the default's,
// else yes.
func (c *Config) Enabled(sampler string) bool { return c.EnabledOr(sampler, true) }

// EnabledOr is Enabled for a sampler that is off unless its own switch is on,
// or that is as the default says.
func (c *Config) EnabledOr(sampler string, usually bool) bool {
	if own := c.Samplers[sampler].Enabled; own != nil {
		return *own
	}
	return usually && (c.Defaults.Enabled == nil || *c.Defaults.Enabled)
}

// SlogLevel is the level for log/slog. trace, which the original has too, is
// below debug.
func (l Log) SlogLevel() (slog.Level, error) {
	levels := map[string]slog.Level{"error": slog.LevelError, "warn": slog.LevelWarn, "info": slog.LevelInfo,
		"debug": slog.LevelDebug, "trace": slog.LevelDebug - 4}
	level, ok := levels[l.Level]
	if !ok {
		return 0, fmt.Errorf(" log.level %q: want error, warn, info, debug or trace", l.Level)
	}
	return level, nil
}
