// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

const meminfo = "memory_meminfo"

// memory is a gauge of bytes of /proc/meminfo.
func memory(name, help string, keys ...string) *metric.Desc {
	return gaugeOf(meminfo, "memory_"+name, metric.Bytes, help, keys...)
}

// hugepages is a gauge of a number of hugepages.
func hugepages(name, help string) *metric.Desc {
	return gaugeOf(meminfo, "memory_hugepages_"+name, pages, help+", of the default size")
}

var (
	memoryActive   = memory("active", "memory used of late, by what is in it", "type")
	memoryInactive = memory("inactive", "memory not used for longer, by what is in it", "type")
	memorySlab     = memory("slab", "memory of the kernel's object caches", "state")
	memoryMapped   = memory("direct_map", "memory that the kernel maps by pages of each size", "size")
)

// meminfoTable is /proc/meminfo (Documentation/filesystems/proc.rst). Active,
// Inactive and Slab are left out: they are the sums of the series by kind and
// state (fs/proc/meminfo.c).
var meminfoTable = []row{
	{key: "MemTotal", desc: memory("total", "memory that the kernel manages")},
	{key: "MemFree", desc: memory("free", "memory that nothing is in")},
	{key: "MemAvailable", desc: memory("available", "memory that programs could get without swapping, as the kernel estimates it")},
	{key: "Buffers", desc: memory("buffers", "page cache of block devices themselves")},
	{key: "Cached", desc: memory("cached", "page cache of files, tmpfs and shared memory")},
	{key: "SwapCached", desc: memory("swap_cached", "swapped-out memory that is in memory too")},
	{key: "Active(anon)", desc: memoryActive, values: []string{"anon"}},
	{key: "Inactive(anon)", desc: memoryInactive, values: []string{"anon"}},
	{key: "Active(file)", desc: memoryActive, values: []string{"file"}},
	{key: "Inactive(file)", desc: memoryInactive, values: []string{"file"}},
	{key: "Unevictable", desc: memory("unevictable", "memory that cannot be reclaimed, such as what is locked")},
	{key: "Mlocked", desc: memory("mlocked", "memory that mlock(2) keeps")},
	{key: "HighTotal", desc: memory("high_total", "memory outside of the kernel's own map (32-bit kernels)")},
	{key: "HighFree", desc: memory("high_free", "memory outside of the kernel's own map that nothing is in")},
	{key: "LowTotal", desc: memory("low_total", "memory in the kernel's own map (32-bit kernels)")},
	{key: "LowFree", desc: memory("low_free", "memory in the kernel's own map that nothing is in")},
	{key: "MmapCopy", desc: memory("mmap_copy", "memory that mappings copied (kernels without an MMU)")},
	{key: "SwapTotal", desc: memory("swap_total", "swap space")},
	{key: "SwapFree", desc: memory("swap_free", "swap space that nothing is in")},
	{key: "Zswap", desc: memory("zswap", "memory that compressed swapped-out pages take")},
	{key: "Zswapped", desc: memory("zswapped", "memory that zswap holds, before compression")},
	{key: "Dirty", desc: memory("dirty", "memory that waits to be written to disk")},
	{key: "Writeback", desc: memory("writeback", "memory that is being written to disk")},
	{key: "AnonPages", desc: memory("anon_pages", "anonymous memory mapped into processes")},
	{key: "Mapped", desc: memory("mapped", "page cache mapped into processes")},
	{key: "Shmem", desc: memory("shmem", "shared memory and tmpfs")},
	{key: "KReclaimable", desc: memory("kernel_reclaimable", "kernel memory that is given back under pressure, reclaimable slab included")},
	{key: "SReclaimable", desc: memorySlab, values: []string{"reclaimable"}},
	{key: "SUnreclaim", desc: memorySlab, values: []string{"unreclaimable"}},
	{key: "KernelStack", desc: memory("kernel_stack", "stacks of all tasks in the kernel")},
	{key: "ShadowCallStack", desc: memory("shadow_call_stack", "shadow call stacks of all tasks in the kernel")},
	{key: "PageTables", desc: memory("page_tables", "page tables of user space")},
	{key: "SecPageTables", desc: memory("secondary_page_tables", "secondary page tables, such as those of KVM")},
	{key: "NFS_Unstable", desc: memory("nfs_unstable", "memory sent to an NFS server and not yet on its disk (always 0 since Linux 5.8)")},
	{key: "Bounce", desc: memory("bounce", "bounce buffers of block devices")},
	{key: "WritebackTmp", desc: memory("writeback_temp", "temporary buffers of FUSE for writeback")},
	{key: "CommitLimit", desc: memory("commit_limit", "memory that can be committed under strict overcommit")},
	{key: "Committed_AS", desc: memory("committed", "memory that has been promised to programs")},
	{key: "VmallocTotal", desc: memory("vmalloc_total", "address space of vmalloc")},
	{key: "VmallocUsed", desc: memory("vmalloc_used", "address space of vmalloc in use")},
	{key: "VmallocChunk", desc: memory("vmalloc_chunk", "largest free block of the address space of vmalloc (always 0 since Linux 4.4)")},
	{key: "Percpu", desc: memory("percpu", "memory of per-CPU allocations")},
	{key: "EarlyMemtestBad", desc: memory("memtest_bad", "memory that the test at boot found bad")},
	{key: "HardwareCorrupted", desc: memory("hardware_corrupted", "memory that is out of use for hardware errors")},
	{key: "AnonHugePages", desc: memory("anon_hugepages", "anonymous memory in transparent hugepages")},
	{key: "ShmemHugePages", desc: memory("shmem_hugepages", "shared memory and tmpfs in transparent hugepages")},
	{key: "ShmemPmdMapped", desc: memory("shmem_pmd_mapped", "shared memory mapped by hugepages")},
	{key: "FileHugePages", desc: memory("file_hugepages", "page cache in transparent hugepages")},
	{key: "FilePmdMapped", desc: memory("file_pmd_mapped", "page cache mapped by hugepages")},
	{key: "CmaTotal", desc: memory("cma_total", "memory set aside for large contiguous allocations")},
	{key: "CmaFree", desc: memory("cma_free", "memory set aside for large contiguous allocations that is free")},
	{key: "Unaccepted", desc: memory("unaccepted", "memory that a confidential guest has not yet accepted")},
	{key: "Balloon", desc: memory("balloon", "memory given back to the hypervisor")},
	{key: "GPUActive", desc: memory("gpu_active", "memory that GPU drivers use")},
	{key: "GPUReclaim", desc: memory("gpu_reclaim", "memory that GPU drivers keep for reuse")},
	{key: "HugePages_Total", desc: hugepages("total", "hugepages in the pool")},
	{key: "HugePages_Free", desc: hugepages("free", "hugepages in the pool that nothing is in")},
	{key: "HugePages_Rsvd", desc: hugepages("reserved", "free hugepages that are promised")},
	{key: "HugePages_Surp", desc: hugepages("surplus", "hugepages above the size that was asked for")},
	{key: "Hugepagesize", desc: memory("hugepage_size", "size of a hugepage by default")},
	{key: "Hugetlb", desc: memory("hugetlb", "memory in the pools of hugepages of all sizes")},
	{key: "DirectMap4k", desc: memoryMapped, values: []string{"4k"}},
	{key: "DirectMap64k", desc: memoryMapped, values: []string{"64k"}},
	{key: "DirectMap1M", desc: memoryMapped, values: []string{"1M"}},
	{key: "DirectMap2M", desc: memoryMapped, values: []string{"2M"}},
	{key: "DirectMap4M", desc: memoryMapped, values: []string{"4M"}},
	{key: "DirectMap1G", desc: memoryMapped, values: []string{"1G"}},
	{key: "DirectMap2G", desc: memoryMapped, values: []string{"2G"}},
}

// A read takes 4 us on 2 CPUs (BenchmarkSamplers).
func meminfoSampler() source.Sampler {
	return source.Sampler{Name: meminfo, Reads: "/proc/meminfo", Descs: rowDescs(meminfoTable),
		Open: func() (source.Source, error) { return newKeyedSource(meminfo, "/proc/meminfo", meminfoTable) }}
}
