// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a new one (pty(7)): what is written to ours is typed.
func terminal(t *testing.T) (ours, theirs *os.File) {
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	if err := unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	return ours, theirs
}

// On a terminal the command that is wrapped can read what is typed, and there
// is a line that tells how it goes.
func TestACommandReadsTheTerminal(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.rezolus.recording")
		if r.FormValue("bye") == "" {
			_, _ = w.Write(twoTicks(t)) // the recorder may be gone
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	ours, theirs := terminal(t)
	cmd := exec.Command("rezolus", "record", "-i", "10ms", "--url", server.URL, "-o", t.TempDir()+"/x.rzr", "--",
		"sh", "-c", `echo ready; read word; echo "it read $word"; exit 5`)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	said := make(chan []byte)
	go func() {
		for {
			b := make([]byte, 1000)
			n, err := ours.Read(b)
			if err != nil {
				return
			}
			said <- b[:n]
		}
	}()
	var all []byte
	typed := false
	late := time.After(20 * time.Second)
	for {
		select {
		case b := <-said:
			all = append(all, b...)
			if !typed && bytes.Contains(all, []byte("ready")) {
				typed = true
				if _, err := ours.Write([]byte("hello\n")); err != nil {
					t.Fatal(err)
				}
			}
			continue
		case <-ended:
		case <-late:
			_ = cmd.Process.Kill()
			t.Fatalf("it does not end: %q", all)
		}
		break
	}
	for more := true; more; {
		select {
		case b := <-said:
			all = append(all, b...)
		case <-time.After(100 * time.Millisecond):
			more = false
		}
	}
	if code := cmd.ProcessState.ExitCode(); code != 5 || !bytes.Contains(all, []byte("it read hello")) {
		t.Errorf("exit status %d: %q", code, all)
	}
	if !regexp.MustCompile(`x\.rzr: 2 ticks`).Match(all) {
		t.Errorf("there is no summary: %q", all)
	}
}
