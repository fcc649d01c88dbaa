// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"runtime"

	"rezolus/internal/metric"
)

// NewRun is the identity of an agent of this version that starts now. What
// the machine does not tell stays empty.
func NewRun(version string) *metric.Run {
	r := &metric.Run{Started: Wall(), Arch: runtime.GOARCH, Version: version}
	rand.Read(r.ID[:]) // never fails (crypto/rand)
	r.Boot, _ = BootID()
	r.Host, _ = os.Hostname()
	if k, err := RunningKernel(); err == nil {
		r.Kernel = k.Release
	}
	return r
}

// BootID is a number that the kernel draws anew at every boot, from
// /proc/sys/kernel/random/boot_id (random(4)).
func BootID() ([16]byte, error) {
	const file = "/proc/sys/kernel/random/boot_id"
	text, err := os.ReadFile(file)
	if err != nil {
		return [16]byte{}, fmt.Errorf("read boot id: %w", err)
	}
	id, err := parseBootID(text)
	if err != nil {
		return [16]byte{}, fmt.Errorf("read boot id: %s: %w", file, err)
	}
	return id, nil
}

func parseBootID(text []byte) (id [16]byte, err error) {
	digits := bytes.ReplaceAll(bytes.TrimSpace(text), []byte("-"), nil)
	if len(digits) != 2*len(id) {
		return id, fmt.Errorf("%q is no UUID", text)
	}
	if _, err := hex.Decode(id[:], digits); err != nil {
		return [16]byte{}, fmt.Errorf("%q is no UUID", text)
	}
	return id, nil
}
