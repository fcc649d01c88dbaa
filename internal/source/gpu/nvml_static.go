// SPDX-License-Identifier: Apache-2.0

//go:build !nvml

package gpu

import "errors"

// loadable tells that this build can load a shared library. A static one
// cannot: the library wants the system's C library.
const loadable = false

func load() (*library, error) { return nil, errors.New("this build loads no libraries") }
