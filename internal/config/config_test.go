// SPDX-License-Identifier: Apache-2.0

package config

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAnEmptyFileIsTheDefaults(t *testing.T) {
	c, err := Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), c); diff != "" {
		t.Error(diff)
	}
	if c.General.Listen != "127.0.0.1:4241" || !c.Enabled("anything") {
		t.Errorf("the defaults are %+v", c)
	}
}

func TestEveryKeyIsRead(t *testing.T) {
	c, err := Parse([]byte(`
[general]
listen = "127.0.0.1:0"
ttl = "1s 500ms"
interval = "100ms"
btf_path = "/dev/null"
web_config = "/etc/web.yml"
realtime = "2ms"
[log]
level = "warn"
[window]
memory = "64MiB"
[cgroups]
max = 7
[probes]
directory = "/somewhere"
[defaults]
enabled = false
[samplers.cpu_usage]
enabled = true
interval = "5s"
[external]
path = "/run/x.sock"
group = "wheel"
ttl = "10s"
[[scrape]]
url = "http://localhost:9100/metrics"
name = "node"
prefix = "n_"
interval = "15s"
timeout = "2s"
counters = ["a"]
`))
	if err != nil {
		t.Fatal(err)
	}
	on, off := true, false
	want := &Config{General{"127.0.0.1:0", Duration(1500 * time.Millisecond), Duration(100 * time.Millisecond), "/dev/null", Duration(2 * time.Millisecond), "/etc/web.yml"},
		Log{"warn"}, Window{64 << 20}, DefaultBudget(), DefaultHindsight(), Cgroups{7}, Probes{"/somewhere"},
		External{"/run/x.sock", "wheel", Duration(10 * time.Second)},
		[]Scrape{{"http://localhost:9100/metrics", "node", "n_", Duration(15 * time.Second), Duration(2 * time.Second), []string{"a"}}},
		nil, Sampler{Enabled: &off}, map[string]Sampler{"cpu_usage": {&on, Duration(5 * time.Second)}}}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
	if c.Enabled("other") || !c.Enabled("cpu_usage") {
		t.Error("a sampler's own switch does not beat the default")
	}
	if level, err := c.Log.SlogLevel(); level != slog.LevelWarn || err != nil {
		t.Errorf("level %v, %v", level, err)
	}
}

func TestBadInputNamesTheLineAndTheFix(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		_, err := Parse([]byte(text))
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%q: error %q lacks %q", text, err, w)
			}
		}
	}
	f("[general]\nlistne = \"x\"", "2: unknown key general.listne", "did you mean general.listen?")
	f("[genral]\nlisten = \"x\"", "unknown key genral", "did you mean general")
	f("[samplers.cpu_usage]\nenable = true", "2: unknown key samplers.cpu_usage.enable", "did you mean samplers.cpu_usage.enabled?")
	f("[general]\ninterval = \"10\"", "2:", "general.interval", "number with a unit", "1s")
	f("[general]\ninterval = \"10 parsec\"", "number with a unit")
	f("[general]\ninterval = \"2h\"", "want 1ms to 1h")
	f("[general]\nlisten = \"nowhere\"", "want host:port")
	f("[log]\nlevel = \"loud\"", "want error, warn, info, debug or trace")
	f("[window]\nmemory = \"16\"", "2:", "not a size", "16MiB")
	f("[window]\nmemory = \"1kB\"", "want 1MiB to 16GiB")
	f("[cgroups]\nmax = 0", "want 1 to 65536")
	f("[cgroups]\nmax = \"many\"", "2:")
	f("[general\n", "1:")
	f("[general]\nbtf_path = \"/no/such/file\"", "general.btf_path", "no such file")
	f("[samplers.x]\ninterval = \"1us\"", "samplers.x.interval", "want 1ms to 1h")
	f("[defaults]\ninterval = \"1s\"", "set it under [samplers.NAME]")
	f("[external]\nttl = \"1ms\"", "external.ttl", "want 1s to 24h")
	f("[[scrape]]\nulr = \"x\"", "2: unknown key scrape.ulr", "did you mean scrape.url?")
	f("[scheduler]\npolicy = \"fifo\"", "is a key of the original Rezolus", "delete it")
	f("[general]\nsnapshot_format = \"v3\"", "is a key of the original")
}

func TestReadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.toml")
	if err := os.WriteFile(path, []byte("[general]\nx = 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.HasPrefix(err.Error(), path+":2: unknown key general.x") {
		t.Errorf("error %v", err)
	}
	if _, err := Read(path + "x"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestUnknownSamplers(t *testing.T) {
	c, err := Parse([]byte("[samplers.cpu_usge]\nenabled = true\n[samplers.zzz]\n"))
	if err != nil {
		t.Fatal(err)
	}
	err = c.CheckSamplers([]string{"cpu_usage", "syscall_counts"})
	want := "[samplers.cpu_usge]: no such sampler; did you mean cpu_usage?\n[samplers.zzz]: no such sampler"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestDurations(t *testing.T) {
	f := func(text string, want time.Duration) {
		t.Helper()
		if got, err := ParseDuration(text); got != want || (err != nil) != (want == 0) {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	f("10ms", 10*time.Millisecond)
	f("1h 30m", 90*time.Minute)
	f("1h30m", 90*time.Minute)
	f("2 days", 48*time.Hour)
	f("1.5s", 1500*time.Millisecond)
	for _, bad := range []string{"", "10", "s", "10 parsec", "-1s", "1s,", "99999999999999999d"} {
		f(bad, 0)
	}
}

func TestSizes(t *testing.T) {
	f := func(text string, want Size, shown string) {
		t.Helper()
		got, err := ParseSize(text)
		if got != want || (err != nil) != (want == 0) || err == nil && got.String() != shown {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	f("16MiB", 16<<20, "16MiB")
	f("1.5 KiB", 1536, "1536B")
	f("1GB", 1e9, "1000000000B")
	f("2048B", 2048, "2KiB")
	f("16", 0, "")
	f("-1MiB", 0, "")
	f("1XB", 0, "")
}

func FuzzParse(f *testing.F) {
	f.Add("[general]\nlisten = \"127.0.0.1:1\"\nttl = \"1s\"\n[samplers.x]\nenabled = true")
	f.Add("[window]\nmemory = \"1e300GiB\"")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse([]byte(text))
		if err == nil && (c.Window.Memory < 1<<20 || c.General.Interval <= 0 || c.General.Listen == "") {
			t.Errorf("accepted as %+v", c)
		}
	})
}

// TestTheExampleIsTheDefaults keeps the file that people copy true.
func TestTheExampleIsTheDefaults(t *testing.T) {
	c, err := Read("../../config/agent.toml")
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	on := true
	want.Defaults.Enabled = &on
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
}
