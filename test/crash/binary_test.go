// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/follow"
	"rezolus/internal/metric"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

// builds is where TestMain has the binaries built.
var builds string

// build makes the real binary, of a version. In the virtual machines there is
// no compiler, and it comes with the tests.
func build(t *testing.T, version string) string {
	t.Helper()
	if path, err := exec.LookPath("rezolus"); err == nil && inVM() {
		return path
	}
	path := filepath.Join(builds, "rezolus-"+version)
	out, err := exec.Command("go", "build", "-ldflags", "-X main.version="+version, "-o", path, "rezolus/cmd/rezolus").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// rezolus is the path of the binary that most tests run.
var rezolus = func() func(t *testing.T) string {
	var once sync.Once
	path := ""
	return func(t *testing.T) string {
		once.Do(func() { path = build(t, "1.0.0") })
		return path
	}
}()

// inVM tells whether this machine is one of test/vm, whose clock and power are
// nobody else's.
func inVM() bool { return os.Getenv("REZOLUS_VM") != "" }

// configure writes the configuration of an agent that reads one sampler, so
// that it is there soon.
func configure(t *testing.T, path, listen, ring string, interval time.Duration, more string) {
	t.Helper()
	keep := "enabled = false"
	if ring != "" {
		keep = fmt.Sprintf("path = %q\ninterval = %q", ring, interval)
	}
	text := fmt.Sprintf("[general]\nlisten = %q\ninterval = %q\n[hindsight]\n%s\n[budget]\ncpu = \"100%%\"\nmemory = \"1GiB\"\n%s",
		listen, interval, keep, more)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// few has an agent read one sampler.
const few = "[defaults]\nenabled = false\n[samplers.cpu_usage]\nenabled = true\n"

// address is one that nobody listens at.
func address(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// process is a rezolus that runs.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	url   string // of an agent
	said  strings.Builder
	ended chan struct{}
	err   error // of Wait
}

// launch starts it. It is killed at the end of the test, if it runs still.
func launch(t *testing.T, binary string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(binary, args...), ended: make(chan struct{})}
	p.cmd.Stderr = &p.said
	p.start()
	return p
}

func (p *process) start() {
	p.t.Helper()
	if err := urgently(p.cmd.Start); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	p.t.Cleanup(func() { p.kill() })
}

// urgently starts a process before which all others have to give way: what a
// killed one had under way is to depend on it, not on them.
func urgently(start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// A process has the priority of the thread that started it. Without
	// rights, it is as it is.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	defer func() { _ = unix.Setpriority(unix.PRIO_PROCESS, 0, 0) }()
	return start()
}

// startAgent starts an agent and waits until it can be asked.
func startAgent(t *testing.T, binary, config string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(binary, config), ended: make(chan struct{})}
	p.cmd.Stderr = &p.said
	// A pipe of our own: Wait closes its own before it is read.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p.cmd.Stdout = w
	p.start()
	w.Close()
	line, err := bufio.NewReader(r).ReadString('\n')
	_, url, ok := strings.Cut(strings.TrimSpace(line), ": ")
	if err != nil || !ok {
		p.kill()
		t.Fatalf("the agent said %q: %v\n%s", line, err, p.said.String())
	}
	p.url = url
	return p
}

// kill sends SIGKILL and tells whether that is what ended it.
func (p *process) kill() bool {
	_ = p.cmd.Process.Kill() // it may have ended, which is found out below
	<-p.ended
	var status *exec.ExitError
	return errors.As(p.err, &status) && status.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
}

// end sends SIGINT and waits until it has ended well.
func (p *process) end() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		p.t.Error(err)
	}
	<-p.ended
	if p.err != nil {
		p.t.Errorf("%v: %v\n%s", p.cmd.Args, p.err, p.said.String())
	}
}

// get decodes the answer to a request of an agent.
func get(url string, into any) error {
	r, err := http.Get(url)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, r.Status, body)
	}
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	return err
}

// await waits for what must come, however slow the machine is.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// run runs rezolus to its end and returns what it prints.
func run(t *testing.T, args ...string) string {
	t.Helper()
	var said strings.Builder
	cmd := exec.Command(rezolus(t), args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v: %v\n%s%s", args, err, out, said.String())
	}
	return string(out)
}

// description is what `rezolus recording info --json` prints.
type description struct {
	Ticks  uint64 `json:"ticks"`
	Missed uint64 `json:"missed"`
	Start  int64  `json:"start_ns"`
	End    int64  `json:"end_ns"`
	Every  int64  `json:"interval_ns"`
	Closed bool   `json:"closed"`
	Runs   []struct {
		Version string `json:"version"`
	} `json:"runs"`
	Gaps []struct {
		From   int64  `json:"from_ns"`
		To     int64  `json:"to_ns"`
		Ticks  uint64 `json:"ticks"`
		Reason string `json:"reason"`
	} `json:"gaps"`
	Events []struct {
		Text string `json:"text"`
	} `json:"events"`
	Damage []any `json:"damage"`
}

// describe checks a recording with the real command and says what it is.
func describe(t *testing.T, path string) (d description) {
	t.Helper()
	run(t, "recording", "check", path)
	if err := json.Unmarshal([]byte(run(t, "recording", "info", "--json", path)), &d); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return d
}

// tick is one as it stands in a file.
type tick struct {
	run                  [16]byte
	seq                  uint64
	wall, mono, interval int64
	missed               uint64
}

// read returns the ticks of a file, and what is said of it.
func read(t *testing.T, path string) (all []tick, info store.Info) {
	t.Helper()
	rec, err := store.Open(vfs.OS, path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	err = rec.Each(t.Context(), math.MinInt64, math.MaxInt64, func(s *metric.Snapshot) error {
		all = append(all, tick{s.Run.ID, s.Seq, s.Wall, s.Mono, s.Interval, s.Missed})
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return all, rec.Info()
}

// follower follows an agent as a recorder does, and remembers what came.
type follower struct {
	mu    sync.Mutex
	walls []int64
	ended chan struct{}
}

func followed(t *testing.T, agent string, interval time.Duration) *follower {
	t.Helper()
	u, err := url.Parse(agent)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f := &follower{ended: make(chan struct{})}
	s, err := follow.Open(ctx, follow.Options{URL: u, Interval: interval, State: func(error) { cancel() }})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(f.ended)
		defer cancel()
		for {
			got, err := s.Next()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.walls = append(f.walls, got.Wall)
			f.mu.Unlock()
		}
	}()
	return f
}

// seen are the times of the ticks that came so far.
func (f *follower) seen() []int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.walls[:len(f.walls):len(f.walls)]
}
