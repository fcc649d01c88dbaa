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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return report(os.Stderr, newRoot().ExecuteContext(ctx))
}
