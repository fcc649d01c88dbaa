// SPDX-License-Identifier: Apache-2.0

// Package crash kills processes that record, at random moments and with
// SIGKILL, and checks that every tick whose Put had returned is in the file.
// Power cuts are simulated next to the code, by vfs.Mem.
//
// By default it kills 200 times, in -short mode 40; go test ./test/crash -kills 1000 kills
// more.
package crash
