// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

// TestKilledAgent kills the agent itself and starts it again on the same ring,
// and then looks for every tick that a dump had shown before.
func TestKilledAgent(t *testing.T) {
	n := 8
	if *kills > 0 {
		n = max(n, *kills/10)
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "rezolus")
	if out, err := exec.Command("go", "build", "-o", binary, "rezolus/cmd/rezolus").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	config := filepath.Join(dir, "agent.toml")
	text := fmt.Sprintf(`
[general]
listen = "127.0.0.1:0"
[hindsight]
path = %q
interval = "10ms"
[budget]
cpu = "100%%"
[defaults]
enabled = false
[samplers.cpu_usage]
enabled = true
`, filepath.Join(dir, "ring"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var seen []int64 // ticks that were in a dump before the agent was killed
	for range n {
		url, kill := startAgent(t, binary, config)
		seen = append(seen, newest(t, url))
		time.Sleep(rand.N(200 * time.Millisecond))
		kill()
	}
	url, kill := startAgent(t, binary, config)
	defer kill()
	newest(t, url)
	checkRing(t, download(t, url, filepath.Join(dir, "all.rzr")), seen)
}

// startAgent starts the agent, and returns its URL and what kills it.
func startAgent(t *testing.T, binary, config string) (url string, kill func()) {
	t.Helper()
	cmd := exec.Command(binary, config)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill() // it may have ended, which the caller finds out
		_ = cmd.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_, url, ok := strings.Cut(strings.TrimSpace(line), ": ")
	if err != nil || !ok {
		kill()
		t.Fatalf("the agent said %q: %v", line, err)
	}
	return url, kill
}

// newest is the newest tick of a dump of the last 50 ms, once there is one of
// this life.
func newest(t *testing.T, url string) int64 {
	t.Helper()
	began := time.Now()
	for range 500 {
		r, err := http.Post(url+"dump/file?last=50ms", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Range struct {
				To int64 `json:"end_ns"`
			} `json:"time_range"`
		}
		err = json.NewDecoder(r.Body).Decode(&got)
		r.Body.Close()
		if err == nil && got.Range.To > began.UnixNano() {
			return got.Range.To
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("no tick comes into the ring")
	return 0
}

func download(t *testing.T, url, path string) *store.Recording {
	t.Helper()
	r, err := http.Get(url + "dump")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.Copy(f, r.Body); err != nil || r.StatusCode != http.StatusOK {
		t.Fatal(r.Status, err)
	}
	rec, err := store.Open(vfs.OS, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rec.Close() })
	return rec
}

// checkRing looks for the ticks that were seen, and for numbers that are
// missing within a life and not told of.
func checkRing(t *testing.T, rec *store.Recording, seen []int64) {
	t.Helper()
	there := map[int64]bool{}
	last, holes := map[[16]byte]uint64{}, uint64(0)
	err := rec.Each(t.Context(), math.MinInt64, math.MaxInt64, func(s *metric.Snapshot) error {
		there[s.Wall] = true
		if before, ok := last[s.Run.ID]; ok {
			holes += s.Seq - before - 1
		}
		last[s.Run.ID] = s.Seq
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	info, told, restarts := rec.Info(), uint64(0), 0
	for _, g := range info.Gaps {
		switch g.Reason {
		case "the agent did not run":
			restarts++
		case "the disk did not keep up":
			told += g.Ticks
		}
	}
	if len(info.Damage) > 0 || len(last) != len(seen)+1 || restarts != len(seen) || holes != told {
		t.Errorf("%d lives and %d gaps between them after %d kills; %d ticks missing, %d told of; damage %v",
			len(last), restarts, len(seen), holes, told, info.Damage)
	}
	for n, wall := range seen {
		if !there[wall] {
			t.Errorf("the tick that was dumped before kill %d is not there", n+1)
		}
	}
}
