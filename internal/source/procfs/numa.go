// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

const numa = "memory_numa"

// nodeKeys are the lines of /proc/meminfo that a node has too
// (drivers/base/node.c, node_read_meminfo).
var nodeKeys = strings.Fields(`MemTotal MemFree SwapCached Active(anon) Inactive(anon) Active(file) Inactive(file)
	Unevictable Mlocked Dirty Writeback AnonPages Mapped Shmem KReclaimable SReclaimable SUnreclaim KernelStack
	ShadowCallStack PageTables SecPageTables NFS_Unstable Bounce WritebackTmp AnonHugePages ShmemHugePages
	ShmemPmdMapped FileHugePages FilePmdMapped Unaccepted Balloon GPUActive GPUReclaim
	HugePages_Total HugePages_Free HugePages_Surp`)

// nodeMeminfo is the meminfo of a node: metrics of memory_meminfo under names
// of their own, because the sums of both are the same memory. MemUsed,
// Active, Inactive and Slab can be computed from the others.
var nodeMeminfo = append(nodeRows(), row{key: "FilePages",
	desc: gaugeOf(numa, "memory_node_file_pages", metric.Bytes, "page cache, by NUMA node", "node")})

func nodeRows() (rows []row) {
	descs := map[*metric.Desc]*metric.Desc{}
	for _, r := range meminfoTable {
		if !slices.Contains(nodeKeys, r.key) {
			continue
		}
		if descs[r.desc] == nil {
			d := *r.desc
			d.Name = strings.Replace(d.Name, "memory_", "memory_node_", 1)
			d.Help += ", by NUMA node"
			d.Keys = append([]string{"node"}, d.Keys...)
			d.Sampler = numa
			descs[r.desc] = &d
		}
		r.desc = descs[r.desc]
		rows = append(rows, r)
	}
	return rows
}

// nodeNumastat is where the pages that were allocated came from
// (Documentation/admin-guide/numastat.rst).
var nodeNumastat = []row{
	{key: "numa_hit", desc: nodeCounter("hit", "pages allocated on the node where they were wanted")},
	{key: "numa_miss", desc: nodeCounter("miss", "pages allocated on this node that were wanted on another")},
	{key: "numa_foreign", desc: nodeCounter("foreign", "pages wanted on this node and allocated on another")},
	{key: "interleave_hit", desc: nodeCounter("interleave", "interleaved pages allocated on the node where they were wanted")},
	{key: "local_node", desc: nodeCounter("local", "pages allocated on this node by a CPU of it")},
	{key: "other_node", desc: nodeCounter("other", "pages allocated on this node by a CPU of another")},
}

func nodeCounter(name, help string) *metric.Desc {
	return counterOf(numa, "memory_node_numa_"+name, metric.None, help, "node")
}

// Numa is the source of the memory of each NUMA node, from meminfo and
// numastat of /sys/devices/system/node/nodeN.
type Numa struct {
	dir    string
	online *source.File
	nodes  []byte // as online had them
	files  []nodeFile
	schema *metric.Schema
}

type nodeFile struct {
	*keyed
	node string
}

// NewNuma opens the files of the nodes below dir.
func NewNuma(dir string) (*Numa, error) {
	online, err := source.OpenFile(filepath.Join(dir, "online"))
	if err != nil {
		return nil, absent(err, "a kernel with NUMA support (CONFIG_NUMA)")
	}
	return &Numa{dir: dir, online: online}, nil
}

// Name is "memory_numa".
func (s *Numa) Name() string { return numa }

// Read fills f, without allocating while the same nodes are online.
func (s *Numa) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	changed, err := s.read()
	f.End = host.Mono()
	if err != nil {
		return err
	}
	if changed {
		var series []metric.Series
		for _, file := range s.files {
			series = file.series(series, file.node)
		}
		if s.schema, err = metric.NewSchema(s.Name(), series); err != nil {
			return err
		}
	}
	f.Schema, f.Lost = s.schema, 0
	f.Resize(s.schema.Words)
	to := f.Values[:0]
	for _, file := range s.files {
		to = file.words(to)
	}
	return nil
}

func (s *Numa) read() (changed bool, err error) {
	nodes, err := s.online.Read()
	if err != nil {
		return false, err
	}
	if s.schema == nil || !bytes.Equal(nodes, s.nodes) {
		s.schema = nil
		if err := s.open(nodes); err != nil {
			return false, err
		}
	}
	for _, file := range s.files {
		other, err := file.read()
		if err != nil {
			s.schema = nil // a node went away: look again next time
			return false, err
		}
		changed = changed || other
	}
	return changed || s.schema == nil, nil
}

// open opens the files of the nodes of a list such as "0-1\n".
func (s *Numa) open(nodes []byte) error {
	s.closeNodes()
	s.nodes = slices.Clone(nodes)
	list, err := host.ParseCPUs(string(bytes.TrimSpace(nodes))) // of the same form
	if err != nil {
		return fmt.Errorf("read nodes that are online: %w", err)
	}
	for _, node := range list {
		for _, part := range []struct {
			name  string
			table []row
		}{{"meminfo", nodeMeminfo}, {"numastat", nodeNumastat}} {
			k, err := openKeyed(fmt.Sprintf("%s/node%d/%s", s.dir, node, part.name), part.table)
			if err != nil {
				return err
			}
			s.files = append(s.files, nodeFile{k, fmt.Sprint(node)})
		}
	}
	return nil
}

func (s *Numa) closeNodes() (err error) {
	for _, file := range s.files {
		err = errors.Join(err, file.file.Close())
	}
	s.files = nil
	return err
}

// Close closes the files.
func (s *Numa) Close() error { return errors.Join(s.closeNodes(), s.online.Close()) }

// A read takes 7 us a node (BenchmarkSamplers).
func numaSampler() source.Sampler {
	const dir = "/sys/devices/system/node"
	return source.Sampler{Name: numa, Reads: dir + "/node*/{meminfo,numastat}", Needs: "CONFIG_NUMA",
		Every: time.Second, Descs: rowDescs(slices.Concat(nodeMeminfo, nodeNumastat)),
		Open: func() (source.Source, error) { return NewNuma(dir) }}
}
