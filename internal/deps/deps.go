// SPDX-License-Identifier: Apache-2.0

// Package deps keeps go.mod whole while the packages that need it are written.
package deps

import (
	_ "github.com/chromedp/chromedp"
	_ "github.com/cilium/ebpf"
	_ "github.com/cilium/ebpf/btf"
	_ "github.com/cilium/ebpf/link"
	_ "github.com/cilium/ebpf/ringbuf"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/pelletier/go-toml/v2"
	_ "github.com/prometheus/prometheus/promql"
	_ "github.com/prometheus/prometheus/promql/promqltest"
	_ "github.com/prometheus/prometheus/util/annotations"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/spf13/cobra"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sys/unix"
	_ "pgregory.net/rapid"
)
