// SPDX-License-Identifier: Apache-2.0

// Package probes holds the built-in probes: C that runs in the kernel, and the
// objects made of it by scripts/generate.sh. Nothing else is in it; what a
// probe measures is said in its C.
package probes

import "embed"

// Objects has every built-in probe, as <subsystem>/<name>.bpf.o.
//
//go:embed */*.bpf.o
var Objects embed.FS
