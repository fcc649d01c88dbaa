// SPDX-License-Identifier: Apache-2.0

// Package procfs reads what the kernel counts in /proc, and for each NUMA node
// below /sys/devices/system/node: a file of this package and a source for a
// file there, parsed in place. Files of keys and values are tables (keyed.go).
//
// It publishes what a file says and computes nothing that a query can, but
// that it takes apart what the kernel counts twice, so that the series of a
// metric can be added up.
package procfs
