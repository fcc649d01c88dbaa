// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
)

// Kernel is the running kernel's release and the version at its front.
type Kernel struct {
	Release             string // uname -r: "6.1.0-44-amd64"
	Major, Minor, Patch int
}

// AtLeast tells whether the kernel is of this version or a later one. A
// distribution's kernel may have what came later, so it is a hint, never a
// reason not to try.
func (k Kernel) AtLeast(major, minor int) bool {
	return k.Major > major || k.Major == major && k.Minor >= minor
}

// String is the release.
func (k Kernel) String() string { return k.Release }

// RunningKernel is the kernel of this machine, from uname(2).
func RunningKernel() (Kernel, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Kernel{}, fmt.Errorf("uname: %w", err)
	}
	return ParseKernel(unix.ByteSliceToString(u.Release[:]))
}

var releaseForm = regexp.MustCompile(`^(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?`)

// ParseKernel reads a release: MAJOR.MINOR, often .PATCH, then anything.
func ParseKernel(release string) (Kernel, error) {
	m := releaseForm.FindStringSubmatch(release)
	if m == nil {
		return Kernel{}, fmt.Errorf("kernel release %q does not begin with MAJOR.MINOR", release)
	}
	k := Kernel{Release: release}
	for i, to := range []*int{&k.Major, &k.Minor, &k.Patch} {
		*to, _ = strconv.Atoi(m[i+1]) // digits; no patch is 0
	}
	return k, nil
}
