// SPDX-License-Identifier: Apache-2.0

// Command rezolus is the whole product: agent, recorder, viewer and query
// tool, a subcommand each. This package composes the others; it measures,
// stores and draws nothing itself.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker.
var version = "unknown"

func main() { os.Exit(run()) }

func run() int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() { cancel(signalled((<-signals).(syscall.Signal))) }()
	err := newRoot().ExecuteContext(ctx)
	return report(os.Stderr, err, context.Cause(ctx))
}
