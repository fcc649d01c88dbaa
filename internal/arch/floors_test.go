// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// floors says on which floor of the house a package lives: imports only point
// down. A pattern that ends in /* stands for each package of that folder.
var floors = []struct {
	pattern string
	floor   int
}{
	{"cmd/rezolus", 5}, {"internal/web", 5}, {"internal/tui", 5}, {"internal/mcp", 5},
	{"internal/analyze", 4}, {"internal/rules", 4},
	{"internal/agent", 3}, {"internal/query", 3}, {"internal/hindsight", 3},
	{"internal/source/*", 2}, {"internal/export/*", 2}, {"internal/budget", 2}, {"internal/ring", 2}, {"internal/follow", 2}, {"internal/gather", 3},
	{"internal/bpf", 1}, {"internal/host", 1}, {"internal/store", 1}, {"internal/config", 1}, {"probes", 1},
	{"internal/source", 1}, // what the sources on floor 2 share
	{"internal/metric", 0}, {"internal/vfs", 0},
	{"internal/hist", -1}, // metric is said in terms of hist
	{"internal/arch", 9}, {"test/*", 9}, {"test/vm/init", 9},
}

func floorOf(t *testing.T, pkg string) int {
	t.Helper()
	for _, f := range floors {
		if ok, _ := path.Match(f.pattern, pkg); ok {
			return f.floor
		}
	}
	t.Errorf("%s lives on no floor: add it to floors in internal/arch, or move it", pkg)
	return 0
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "rezolus/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); err == io.EOF {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

func TestImportsOnlyPointDown(t *testing.T) {
	for _, p := range listPackages(t) {
		from := strings.TrimPrefix(p.ImportPath, "rezolus/")
		floor := floorOf(t, from)
		for _, i := range p.Imports {
			to, ours := strings.CutPrefix(i, "rezolus/")
			if !ours {
				continue
			}
			below := floorOf(t, to) < floor
			composer := from == "cmd/rezolus" || floor == 9
			if !below && !composer {
				t.Errorf("%s (floor %d) imports %s (floor %d)", from, floor, to, floorOf(t, to))
			}
		}
	}
}

// edges are libraries that only one package may import, so that each can be
// replaced in one place; and one that two formats are compressed with.
var edges = map[string]string{
	"github.com/prometheus/":                  "internal/query",
	"github.com/prometheus/exporter-toolkit/": "cmd/rezolus",
	"github.com/cilium/ebpf":                  "internal/bpf",
	"github.com/pelletier/go-toml":            "internal/config",
	"github.com/klauspost/":                   "internal/store internal/export/parquet",
	"github.com/spf13/cobra":                  "cmd/rezolus",
	"github.com/parquet-go/":                  "internal/export/parquet",
	"github.com/ebitengine/purego":            "internal/source/gpu",
}

func TestLibrariesStayBehindOnePackage(t *testing.T) {
	for _, p := range listPackages(t) {
		for _, i := range p.Imports {
			longest := "" // the prefix that says most
			for prefix := range edges {
				if strings.HasPrefix(i, prefix) && len(prefix) > len(longest) {
					longest = prefix
				}
			}
			owners := strings.Fields(edges[longest])
			mine := slices.Contains(owners, strings.TrimPrefix(p.ImportPath, "rezolus/"))
			if len(owners) > 0 && !mine && !strings.HasPrefix(p.ImportPath, "rezolus/test/") {
				t.Errorf("%s imports %s, which is for %s alone", p.ImportPath, i, owners)
			}
		}
	}
}
