// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// Hindsight is the ring: the latest ticks, kept on disk.
type Hindsight struct {
	Enabled  bool     `toml:"enabled"`
	Path     string   `toml:"path"`     // its directory
	Interval Duration `toml:"interval"` // from one of its ticks to the next
	Duration Duration `toml:"duration"` // how far it reaches back
	Size     Size     `toml:"size"`     // the most it takes
	Reserve  Reserve  `toml:"reserve"`  // what it leaves to others
	Dumps    string   `toml:"dumps"`    // where dumps go; empty: dumps within Path
	Keep     int      `toml:"keep"`     // so many dumps at most; the oldest go
	KeepSize Size     `toml:"keep_size"`
	Fine     Fine     `toml:"fine"`
}

// Fine is a second ring of a finer resolution, that reaches less far back.
type Fine struct {
	Enabled  bool     `toml:"enabled"`
	Interval Duration `toml:"interval"`
	Duration Duration `toml:"duration"`
	Size     Size     `toml:"size"`
}

// DefaultHindsight is the ring of an empty file.
func DefaultHindsight() Hindsight {
	return Hindsight{Enabled: true, Path: "/var/lib/rezolus/hindsight", Interval: Duration(time.Second),
		Duration: Duration(24 * time.Hour), Size: 1 << 30, Keep: 16, KeepSize: 1 << 30,
		Fine: Fine{Interval: Duration(10 * time.Millisecond), Duration: Duration(10 * time.Minute), Size: 256 << 20}}
}

// DumpsPath is the directory in which dumps are.
func (h Hindsight) DumpsPath() string {
	if h.Dumps != "" {
		return h.Dumps
	}
	return filepath.Join(h.Path, "dumps")
}

func (h Hindsight) check(section string) error {
	if !filepath.IsAbs(h.Path) {
		return fmt.Errorf(" %s.path %q: want an absolute path", section, h.Path)
	}
	if h.Dumps != "" && !filepath.IsAbs(h.Dumps) {
		return fmt.Errorf(" %s.dumps %q: want an absolute path", section, h.Dumps)
	}
	if h.Keep < 1 {
		return fmt.Errorf(" %s.keep %d: want at least 1", section, h.Keep)
	}
	if h.KeepSize < 1<<20 {
		return fmt.Errorf(" %s.keep_size %v: want at least 1MiB", section, h.KeepSize)
	}
	err := checkRing(section, h.Interval, h.Duration, h.Size)
	if h.Fine.Enabled && err == nil {
		err = checkRing(section+".fine", h.Fine.Interval, h.Fine.Duration, h.Fine.Size)
	}
	return err
}

func checkRing(section string, interval, duration Duration, size Size) error {
	switch i, d := time.Duration(interval), time.Duration(duration); {
	case i < time.Millisecond || i > time.Hour:
		return fmt.Errorf(" %s.interval %v: want 1ms to 1h", section, i)
	case d < 10*time.Second || d < 10*i:
		return fmt.Errorf(" %s.duration %v: want at least 10s, and ten intervals", section, d)
	case size < 16<<20:
		return fmt.Errorf(" %s.size %v: want at least 16MiB", section, size)
	}
	return nil
}

// Reserve is space on a file system, in bytes or as a share of it. The zero
// Reserve is a twentieth, or 1 GiB if that is less.
type Reserve struct {
	Size  Size
	Share float64 // of 1
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Reserve) UnmarshalText(text []byte) error {
	if share, err := ParsePercent(string(text)); err == nil && share.Share < 1 {
		*r = Reserve{Share: share.Share}
		return nil
	}
	size, err := ParseSize(string(text))
	if err != nil {
		return fmt.Errorf("%q is no space to leave; want a size or a share, such as 1GiB or 5%%", text)
	}
	*r = Reserve{Size: size}
	return nil
}

// Bytes is the reserve on a file system of a size; 0: the usual one.
func (r Reserve) Bytes(total int64) int64 {
	return max(int64(r.Size), int64(r.Share*float64(total)))
}

// Follower is the configuration of `rezolus hindsight`, which keeps the ring
// of an agent elsewhere. The keys under [general] are the original's; those
// of the ring itself are as in the agent's file.
type Follower struct {
	General   FollowerGeneral `toml:"general"`
	Log       Log             `toml:"log"`
	Hindsight FollowerRing    `toml:"hindsight"`
}

// FollowerGeneral is whom it follows, and how.
type FollowerGeneral struct {
	Source   string   `toml:"source"` // URL of the agent, or host:port
	Listen   string   `toml:"listen"` // host:port; empty: it serves nothing
	Interval Duration `toml:"interval"`
	Duration Duration `toml:"duration"`
	// Output is the directory of the dumps. The original writes each dump
	// over one file: where that is named, dumps go to its directory.
	Output string `toml:"output"`
	// WebConfig is a file of TLS and passwords of what it serves, as the
	// agent's is.
	WebConfig string `toml:"web_config"`
	Access           // to the agent
}

// FollowerRing is where it keeps what it hears.
type FollowerRing struct {
	Path     string  `toml:"path"`
	Size     Size    `toml:"size"`
	Reserve  Reserve `toml:"reserve"`
	Keep     int     `toml:"keep"`
	KeepSize Size    `toml:"keep_size"`
}

// ReadFollower reads the file at path.
func ReadFollower(path string) (*Follower, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	f, err := ParseFollower(text)
	if err != nil {
		return nil, fmt.Errorf("%s:%w", path, err)
	}
	return f, nil
}

// ParseFollower reads a configuration. The error begins with the line it is
// about.
func ParseFollower(text []byte) (*Follower, error) {
	usual := DefaultHindsight()
	f := &Follower{Log: Log{Level: "info"},
		General: FollowerGeneral{Source: "127.0.0.1:4241", Interval: usual.Interval, Duration: Duration(15 * time.Minute)},
		Hindsight: FollowerRing{Path: "/var/lib/rezolus/hindsight-remote", Size: usual.Size, Reserve: usual.Reserve,
			Keep: usual.Keep, KeepSize: usual.KeepSize}}
	d := toml.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(f); err != nil {
		var unknown *toml.StrictMissingError
		if errors.As(err, &unknown) && len(unknown.Errors) > 0 {
			return nil, explainFollower(unknown.Errors[0])
		}
		return nil, explain(err)
	}
	return f, f.check()
}

func (f *Follower) check() error {
	if !strings.Contains(f.General.Source, "://") {
		f.General.Source = "http://" + f.General.Source
	}
	if u, err := url.Parse(f.General.Source); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// What is wrong may have a password in it.
		return errors.New(" general.source: want the URL of an agent, such as http://127.0.0.1:4241")
	}
	if f.General.Listen != "" {
		if _, _, err := net.SplitHostPort(f.General.Listen); err != nil {
			return fmt.Errorf(" general.listen %q: want host:port, such as 127.0.0.1:4243", f.General.Listen)
		}
	}
	if _, err := f.Log.SlogLevel(); err != nil {
		return err
	}
	h := f.Ring()
	if err := checkRing("general", h.Interval, h.Duration, 1<<30); err != nil {
		return err
	}
	return h.check("hindsight")
}

// Ring is what it keeps, in the words of the agent's configuration.
func (f *Follower) Ring() Hindsight {
	dumps := f.General.Output
	switch filepath.Ext(dumps) {
	case ".rez", ".rzr", ".parquet":
		dumps = filepath.Dir(dumps)
	}
	r := f.Hindsight
	return Hindsight{Enabled: true, Path: r.Path, Interval: f.General.Interval, Duration: f.General.Duration, Size: r.Size,
		Reserve: r.Reserve, Dumps: dumps, Keep: r.Keep, KeepSize: r.KeepSize}
}
