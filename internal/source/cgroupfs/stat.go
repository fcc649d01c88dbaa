// SPDX-License-Identifier: Apache-2.0

package cgroupfs

import "bytes"

// parseStat takes user_usec and system_usec out of a cpu.stat, in nanoseconds.
func parseStat(text []byte, times []uint64) bool {
	found := 0
	for len(text) > 0 && found < len(cpuStates) {
		var line []byte
		line, text, _ = bytes.Cut(text, newline)
		for i, key := range keys {
			value, is := bytes.CutPrefix(line, key)
			if !is {
				continue
			}
			usec, ok := number(value)
			if !ok {
				return false
			}
			times[i] = usec * 1000
			found++
		}
	}
	return found == len(cpuStates)
}

var (
	newline = []byte("\n")
	keys    = [len(cpuStates)][]byte{[]byte("user_usec "), []byte("system_usec ")} // in the order of cpuStates
)

// number is the decimal number that is all of b, but for a line's end.
func number(b []byte) (n uint64, ok bool) {
	for i, d := range b {
		if d == '\n' && i == len(b)-1 {
			return n, i > 0
		}
		if d < '0' || d > '9' {
			return 0, false
		}
		n = n*10 + uint64(d-'0')
	}
	return n, len(b) > 0
}
