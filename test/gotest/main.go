// SPDX-License-Identifier: Apache-2.0

// Command gotest runs `go test -json` with the arguments it is given, and
// without results of earlier runs, for the kernel is part of them. It prints
// one line a package and the output of what failed, and ends with a line
// that counts. It fails where go test fails, and on a skip that
// test/skips.txt does not explain.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"rezolus/test/skips"
)

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

type tally struct {
	passed, failed int
	skipped        []string
	output         map[string][]string // by package and test
}

func main() {
	cmd := exec.Command("go", append([]string{"test", "-json", "-count=1"}, os.Args[1:]...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
	t := tally{output: map[string][]string{}}
	t.read(out)
	err = cmd.Wait()
	if err == nil {
		err = skips.Check("test/skips.txt", "host", t.skipped)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", t.passed, t.failed, len(t.skipped))
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
}

func (t *tally) read(r io.Reader) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Println(lines.Text()) // go's own word, such as a build failure
			continue
		}
		t.event(e)
	}
}

func (t *tally) event(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		t.output[key] = append(t.output[key], e.Output)
		if e.Action == "build-output" {
			fmt.Print(e.Output)
		}
	case "pass", "skip", "fail":
		t.ended(e, key)
		delete(t.output, key)
	}
}

func (t *tally) ended(e event, key string) {
	if e.Test == "" {
		if e.Action != "skip" { // skip: no test files
			fmt.Printf("%-5s %s %.1fs\n", e.Action, e.Package, e.Elapsed)
		}
		if e.Action == "fail" {
			fmt.Print(strings.Join(t.output[key], ""))
		}
		return
	}
	switch e.Action {
	case "pass":
		t.passed++
	case "skip":
		t.skipped = append(t.skipped, strings.ReplaceAll(strings.TrimPrefix(e.Package, "rezolus/"), "/", ".")+"."+e.Test)
	case "fail":
		t.failed++
		fmt.Print(strings.Join(t.output[key], ""))
	}
}
