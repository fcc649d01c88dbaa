// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"syscall"
)

// How the commands talk:
//
//   - What was asked for goes to standard output, everything else to standard
//     error. A program that reads the output finds nothing else in it.
//   - An error is one line, "rezolus: error: ...", in lower case without a full
//     stop, and names the thing it is about. A second line, "rezolus: hint:
//     ...", says what to do where that is known, as a command to paste if it
//     can be one.
//   - Exit status: 0 all is well, 1 it failed, 2 it was called wrongly, 3 the
//     command looked and did not like what it saw (doctor, status). `record`
//     exits as the command it wraps. What runs until SIGINT or SIGTERM exits
//     with 0 then; what they interrupt, with 128 and the signal's number, and
//     one word, for nobody needs to be told what he did.
//   - Nothing moves on a screen that is not a terminal.

// hinted is an error with what to do about it.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

// hint adds advice to an error.
func hint(err error, format string, args ...any) error {
	return hinted{err, fmt.Sprintf(format, args...)}
}

// usage is an error in how the command was called.
type usage struct{ error }

func (u usage) Unwrap() error { return u.error }

// exit ends the program with a status, and without another word.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// signalled is the cause of a context that a signal ended.
type signalled syscall.Signal

func (s signalled) Error() string { return syscall.Signal(s).String() }

// Is makes it what a context says that ended: some return its cause instead.
func (s signalled) Is(target error) bool { return target == context.Canceled }

var joined = reflect.TypeOf(errors.Join(io.EOF))

// uncanceled is an error less what only says that a context ended.
func uncanceled(err error) error {
	if many, ok := err.(interface{ Unwrap() []error }); ok && reflect.TypeOf(err) == joined {
		var rest []error
		for _, e := range many.Unwrap() {
			rest = append(rest, uncanceled(e))
		}
		return errors.Join(rest...)
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// report prints the error and is the exit status for it. cause is why the
// context ended, if it did.
func report(w io.Writer, err, cause error) int {
	var status exit
	switch {
	case err == nil, errors.Is(err, syscall.EPIPE): // the reader of a pipe left
		return 0
	case errors.As(err, &status):
		return int(status)
	}
	if err = uncanceled(err); err == nil {
		fmt.Fprintln(w, "rezolus: interrupted")
		var s signalled
		if errors.As(cause, &s) {
			return 128 + int(s)
		}
		return 1
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(w, "rezolus: error: %s\n", strings.TrimRight(line, "\n"))
	}
	var h hinted
	if errors.As(err, &h) {
		fmt.Fprintf(w, "rezolus: hint: %s\n", h.hint)
	}
	var u usage
	if errors.As(err, &u) {
		return 2
	}
	return 1
}
