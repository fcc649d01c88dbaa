// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"regexp"
	"runtime"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// storm has every CPU do nothing but system calls until it is told to end:
// storm, then storm end.
func storm(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 1 {
		storms.end()
		return
	}
	storms.begin()
	ts.Defer(storms.end)
}

var storms load

type load struct {
	stop chan struct{}
	on   sync.WaitGroup
}

func (l *load) begin() {
	stop := make(chan struct{})
	l.stop = stop
	for range runtime.NumCPU() {
		l.on.Go(func() {
			for {
				for range 1000 {
					unix.Getppid()
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
}

func (l *load) end() {
	if l.stop != nil {
		close(l.stop)
		l.stop = nil
		l.on.Wait()
	}
}

// poll asks a URL until what it says matches, or no longer does: poll URL
// PATTERN. It does not ask often, which would cost the agent, too.
func poll(ts *testscript.TestScript, neg bool, args []string) {
	want := regexp.MustCompile(args[1])
	var last string
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(400 * time.Millisecond) {
		r, err := http.Get(args[0])
		if err != nil {
			continue
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		ts.Check(err)
		if last = string(body); want.MatchString(last) != neg {
			return
		}
	}
	ts.Fatalf("after 30 s, %s matches %q: %v\n%s", args[0], args[1], neg, last)
}
