// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"rezolus/internal/store"
)

// TestMain makes this test binary the command itself, for the scripts.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"rezolus": main})
}

// TestScripts runs testdata/*.txtar, a script for each behaviour. They need
// root: the agent in them is a real one.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			defer l.Close()
			e.Vars = append(e.Vars, "ADDR="+l.Addr().String(), "URL=http://"+l.Addr().String())
			// Tests share a machine that is busy, and must not lose what they look at.
			general := fmt.Sprintf("[general]\nlisten = %q\ninterval = \"100ms\"\n[hindsight]\npath = %q\n[budget]\n",
				l.Addr(), filepath.Join(e.WorkDir, "ring"))
			return errors.Join(
				os.WriteFile(filepath.Join(e.WorkDir, "agent.toml"), []byte(general+"cpu = \"100%\"\nmemory = \"1GiB\"\n"), 0o644),
				os.WriteFile(filepath.Join(e.WorkDir, "budget.toml"), []byte(general+"cpu = \"8%\"\ninterval = \"200ms\"\n"), 0o644))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"await": await, "get": get, "smalldisk": smallDisk, "sleep": sleep, "signal": signalChild, "cut": cut,
			"recording": recording, "nobody": nobody, "storm": storm, "poll": poll,
			"fabricate": fabricate, "flip": flip,
			"prometheus": prometheus, "native": native, "hung": hung, "another": another, "webconfig": webconfig,
			"wire": newWire, "cutwire": cutWire, "sameticks": sameTicks,
		},
	})
}

// await waits until a URL answers 200.
func await(ts *testscript.TestScript, neg bool, args []string) {
	for range 200 {
		if r, err := http.Get(args[0]); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	ts.Fatalf("%s does not answer", args[0])
}

// get prints the body of a URL into a file: get URL FILE.
func get(ts *testscript.TestScript, neg bool, args []string) {
	r, err := http.Get(args[0])
	ts.Check(err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), body, 0o644))
}

// smallDisk mounts a file system of so many kB: smalldisk DIR KB.
func smallDisk(ts *testscript.TestScript, neg bool, args []string) {
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+args[1]+"k"); err != nil {
		ts.Fatalf("mount tmpfs: %v", err)
	}
	ts.Defer(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

func sleep(ts *testscript.TestScript, neg bool, args []string) {
	d, err := time.ParseDuration(args[0])
	ts.Check(err)
	time.Sleep(d)
}

// signalChild sends a signal to the process whose id a file holds, once it is
// there: signal NUMBER FILE.
func signalChild(ts *testscript.TestScript, neg bool, args []string) {
	number, err := strconv.Atoi(args[0])
	ts.Check(err)
	for range 100 {
		if text, err := os.ReadFile(ts.MkAbs(args[1])); err == nil {
			if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
				ts.Check(syscall.Kill(pid, syscall.Signal(number)))
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	ts.Fatalf("%s never held a process id", args[1])
}

// cut takes bytes off the end of a file: cut FILE N.
func cut(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	info, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), info.Size()-int64(n)))
}

// recording prints what a recording is, as JSON, into a file: recording FILE
// OUT. With a third argument it must have at least so many ticks.
func recording(ts *testscript.TestScript, neg bool, args []string) {
	r, err := store.Open(osFS, ts.MkAbs(args[0]))
	ts.Check(err)
	defer r.Close()
	info := r.Info()
	text, err := json.MarshalIndent(map[string]any{"ticks": info.Ticks, "missed": info.Missed, "closed": info.Closed,
		"gaps": len(info.Gaps), "events": len(info.Events), "damage": len(info.Damage), "runs": len(info.Runs)}, "", " ")
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), text, 0o644))
	if len(args) == 3 {
		least, err := strconv.Atoi(args[2])
		ts.Check(err)
		if info.Ticks < uint64(least) {
			ts.Fatalf("%s has %d ticks, want at least %d", args[0], info.Ticks, least)
		}
	}
}

// nobody runs rezolus without any right: nobody OUT ARGS... Its output and exit
// status go to the file.
func nobody(ts *testscript.TestScript, neg bool, args []string) {
	// The test's own folder is root's alone.
	dir, err := os.MkdirTemp("", "nobody")
	ts.Check(err)
	ts.Defer(func() { os.RemoveAll(dir) })
	ts.Check(os.Chmod(dir, 0o755))
	self, err := os.ReadFile("/proc/self/exe")
	ts.Check(err)
	binary := filepath.Join(dir, "rezolus")
	ts.Check(os.WriteFile(binary, self, 0o755))
	cmd := exec.Command(binary, args[1:]...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), fmt.Appendf(out, "status: %v\n", err), 0o644))
}
