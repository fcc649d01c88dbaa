// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHindsight(t *testing.T) {
	c, err := Parse([]byte(`
[hindsight]
path = "/r"
interval = "2s"
duration = "1d"
size = "100MiB"
reserve = "5%"
dumps = "/d"
keep = 3
keep_size = "1GB"
fine = { enabled = true, interval = "5ms" }
`))
	if err != nil {
		t.Fatal(err)
	}
	want := Hindsight{Enabled: true, Path: "/r", Interval: Duration(2 * time.Second), Duration: Duration(24 * time.Hour), Size: 100 << 20,
		Reserve: Reserve{Share: 0.05}, Dumps: "/d", Keep: 3, KeepSize: 1e9,
		Fine: Fine{Enabled: true, Interval: Duration(5 * time.Millisecond), Duration: Duration(10 * time.Minute), Size: 256 << 20}}
	if diff := cmp.Diff(want, c.Hindsight); diff != "" {
		t.Error(diff)
	}
	if got := c.Hindsight.Reserve.Bytes(1000); got != 50 {
		t.Errorf("5%% of 1000 bytes is %d", got)
	}
	if got := DefaultHindsight().DumpsPath(); got != "/var/lib/rezolus/hindsight/dumps" {
		t.Errorf("dumps are in %s", got)
	}
}

func TestHindsightRefused(t *testing.T) {
	for text, want := range map[string]string{
		`path = "here"`:                           "absolute path",
		`dumps = "here"`:                          "absolute path",
		`interval = "1us"`:                        "1ms to 1h",
		`duration = "5s"`:                         "at least 10s",
		`interval = "1m"` + "\nduration='5m'":     "ten intervals",
		`size = "1MiB"`:                           "at least 16MiB",
		`reserve = "100%"`:                        "a size or a share",
		`keep = 0`:                                "at least 1",
		`fine = { enabled = true, size = "1kB" }`: "hindsight.fine.size",
		`pathh = "/x"`:                            "did you mean hindsight.path",
	} {
		if _, err := Parse([]byte("[hindsight]\n" + text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestFollowerOfTheOriginal reads a file as the original's package installs
// it.
func TestFollowerOfTheOriginal(t *testing.T) {
	f, err := ParseFollower([]byte(`
[general]
interval = "100ms"
duration = "15m"
source = "127.0.0.1:4241"
output = "/tmp/x/rezolus.rez"
listen = "127.0.0.1:4242"
[log]
level = "info"
`))
	if err != nil {
		t.Fatal(err)
	}
	if f.General.Source != "http://127.0.0.1:4241" {
		t.Errorf("source %q", f.General.Source)
	}
	r := f.Ring()
	if r.Dumps != "/tmp/x" || r.Interval != Duration(100*time.Millisecond) || r.Duration != Duration(15*time.Minute) {
		t.Errorf("%+v", r)
	}
}

func TestFollowerRefused(t *testing.T) {
	for text, want := range map[string]string{
		"[general]\nsegment_rows = 900": "2: general.segment_rows is a key of the original",
		"[general]\nsourc = 'x'":        "did you mean general.source",
		"[general]\nsource = '::'":      "want the URL of an agent",
		"[general]\nsource = 'ftp://a'": "want the URL of an agent",
		"[general]\npasword_file = 'x'": "did you mean general.password_file",
		"[general]\nlisten = 'x'":       "want host:port",
		"[hindsight]\npath = 'x'":       "absolute path",
	} {
		if _, err := ParseFollower([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestFollowerAccess reads the keys that every client has as flags.
func TestFollowerAccess(t *testing.T) {
	f, err := ParseFollower([]byte(`[general]
source = "https://a"
ca = "ca.pem"
cert = "c"
key = "k"
insecure = true
username = "me"
password_file = "p"
headers = ["@token", "a: b"]
web_config = "w.yml"
`))
	if err != nil {
		t.Fatal(err)
	}
	want := Access{CA: "ca.pem", Cert: "c", Key: "k", Insecure: true, Username: "me", PasswordFile: "p", Headers: []string{"@token", "a: b"}}
	if diff := cmp.Diff(want, f.General.Access); diff != "" || f.General.WebConfig != "w.yml" {
		t.Errorf("web_config %q, and %s", f.General.WebConfig, diff)
	}
	secret := "http://me:s3cret@[::"
	if _, err := ParseFollower([]byte("[general]\nsource = '" + secret + "'")); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v", err)
	}
}

// TestFollowerExample holds the file that is shipped to the defaults.
func TestFollowerExample(t *testing.T) {
	got, err := ReadFollower("../../config/hindsight.toml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := ParseFollower([]byte("[general]\nlisten = '127.0.0.1:4243'"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseFollower(f *testing.F) {
	f.Add("[general]\nsource = 'a:1'\ninterval = '1s'\n[hindsight]\nreserve = '5%'\nsize = '1GiB'")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseFollower([]byte(text))
		if err != nil {
			return
		}
		r := c.Ring()
		if r.check("x") != nil || r.Reserve.Bytes(1<<40) < 0 {
			t.Errorf("%+v was accepted", r)
		}
	})
}
