// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"rezolus/internal/query"
	"rezolus/internal/store"
)

func TestReport(t *testing.T) {
	interrupt, disk := signalled(syscall.SIGINT), errors.New("the disk is full")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, asked := query.New(query.Options{}).Instant(ended, store.NewWindow(0), "up", time.Now())
	for name, c := range map[string]struct {
		err, cause error
		status     int
		says       string
	}{
		"nothing":               {nil, interrupt, 0, ""},
		"a reader that left":    {fmt.Errorf("write: %w", syscall.EPIPE), nil, 0, ""},
		"an exit":               {errors.Join(exit(3), context.Canceled), interrupt, 3, ""},
		"an error":              {hint(usage{disk}, "remove %s", "it"), nil, 2, "rezolus: error: the disk is full\nrezolus: hint: remove it\n"},
		"interrupted":           {fmt.Errorf("convert: %w", context.Canceled), interrupt, 130, "rezolus: interrupted\n"},
		"terminated":            {errors.Join(context.Canceled, nil, context.Canceled), signalled(syscall.SIGTERM), 143, "rezolus: interrupted\n"},
		"a query":               {fmt.Errorf("ask: %w", asked), interrupt, 130, "rezolus: interrupted\n"},
		"interrupted, and more": {errors.Join(context.Canceled, disk), interrupt, 1, "rezolus: error: the disk is full\n"},
		"ended otherwise":       {context.Canceled, context.Canceled, 1, "rezolus: interrupted\n"},
	} {
		var said strings.Builder
		if status := report(&said, c.err, c.cause); status != c.status || said.String() != c.says {
			t.Errorf("%s: exit status %d, %q; want %d, %q", name, status, &said, c.status, c.says)
		}
	}
}

// What waits for an agent that does not answer ends when it is told to, with
// the status that a shell has for it, and without a word about contexts.
func TestInterrupted(t *testing.T) {
	file := t.TempDir() + "/x.rzr"
	for _, c := range []struct {
		signal syscall.Signal
		args   string
		status int
	}{
		{syscall.SIGINT, "status URL", 130},
		{syscall.SIGTERM, "status URL", 143},
		{syscall.SIGINT, "event --url URL hello", 130},
		{syscall.SIGTERM, "hindsight dump --url URL -o " + file, 143},
		{syscall.SIGINT, "hindsight dump --url URL --there", 130},
		{syscall.SIGINT, "record --url URL -o " + file, 130},
	} {
		asked, hangs := make(chan struct{}, 1), make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // so that it is known when the client leaves
			asked <- struct{}{}
			<-hangs
		}))
		cmd := exec.Command("rezolus", strings.Fields(strings.ReplaceAll(c.args, "URL", server.URL))...)
		var said strings.Builder
		cmd.Stderr, cmd.Stdout = &said, &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-asked
		if err := cmd.Process.Signal(c.signal); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // its status says how
		if code := cmd.ProcessState.ExitCode(); code != c.status || said.String() != "rezolus: interrupted\n" {
			t.Errorf("%s: exit status %d, %q; want %d", c.args, code, &said, c.status)
		}
		close(hangs)
		server.Close()
	}
}
