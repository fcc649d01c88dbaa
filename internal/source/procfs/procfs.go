// SPDX-License-Identifier: Apache-2.0

// Package procfs reads what the kernel counts in /proc: a file of this package
// and a source for a file there (/proc/stat: stat.go; /proc/meminfo would be
// meminfo.go), parsed in place.
//
// It publishes what a file says and computes nothing that a query can.
package procfs
