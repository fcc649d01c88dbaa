// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"strings"
)

// MaxFunctions is how many functions can be named: each takes two programs and
// some 30 KiB of kernel memory.
const MaxFunctions = 64

// Function is a function in user space whose calls are counted (the sampler
// usercall).
type Function struct {
	Name     string `toml:"name"`     // value of the label function; empty: as the function
	Path     string `toml:"path"`     // absolute, or the name of a library
	Function string `toml:"function"` // symbol, or symbol+0x10
	Latency  bool   `toml:"latency"`  // its calls are timed, too
}

// Library is the value of the label library: the file's name.
func (f Function) Library() string { return filepath.Base(f.Path) }

// Label is the value of the label function.
func (f Function) Label() string {
	if f.Name != "" {
		return f.Name
	}
	return f.Function
}

func (c *Config) checkFunctions() error {
	if len(c.Functions) > MaxFunctions {
		return fmt.Errorf(" %d functions; at most %d can be counted", len(c.Functions), MaxFunctions)
	}
	seen := map[string]bool{}
	for i, f := range c.Functions {
		label := f.Library() + ":" + f.Label()
		switch {
		case f.Function == "":
			return fmt.Errorf(" functions (number %d): function is missing: the symbol, such as malloc", i+1)
		case f.Path == "":
			return fmt.Errorf(" functions (%s): path is missing: of the program, or the library's name, such as libc.so.6", f.Function)
		case strings.Contains(f.Path, "/") && !filepath.IsAbs(f.Path):
			return fmt.Errorf(" functions (%s): path %q: want an absolute path, or the name of a library without a folder", f.Function, f.Path)
		case seen[label]:
			return fmt.Errorf(" functions (%s): there is another %s of %s; give one of them another name", f.Function, f.Label(), f.Library())
		}
		seen[label] = true
	}
	return nil
}
