// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"os"

	"rezolus/internal/metric"
)

var pageSize = uint64(os.Getpagesize())

func happened(name, help string, keys ...string) *metric.Desc {
	return counterOf(vmstat, "memory_"+name, metric.None, help, keys...)
}

func paged(name, help string, keys ...string) *metric.Desc {
	return counterOf(vmstat, "memory_"+name, pages, help, keys...)
}

func bytesOf(name, help string, keys ...string) *metric.Desc {
	return counterOf(vmstat, "memory_"+name, metric.Bytes, help, keys...)
}

func bytesNow(name, help string, keys ...string) *metric.Desc {
	return gaugeOf(vmstat, "memory_"+name, metric.Bytes, help, keys...)
}

// The metrics that are more than one line.
var (
	hintFaults       = happened("numa_hint_faults", "faults made to see who uses a page, by where the page is", "kind")
	pageFaults       = happened("page_faults", "page faults, major where they had to wait for a disk", "kind")
	diskPaging       = bytesOf("paged", "data read into memory from block devices, or written from it", "direction")
	swapped          = bytesOf("swapped", "memory read from swap devices, or written to them", "direction")
	swappedZero      = paged("swapped_zero", "pages of zeros swapped without input or output", "direction")
	zswapped         = paged("zswap_swapped", "pages taken out of zswap, or put in", "direction")
	allocated        = paged("allocated", "pages allocated", "zone")
	allocationStalls = happened("allocation_stalls", "allocations that had to reclaim memory themselves", "zone")
	isolated         = bytesNow("isolated", "memory taken off its list to be reclaimed or moved", "type")
	pinned           = paged("pins", "pages pinned for a device, and pins released", "op")
	scanned          = paged("reclaim_scanned", "pages that reclaim looked at, by who reclaimed", "by")
	reclaimed        = paged("reclaim_reclaimed", "pages that were reclaimed, by who did", "by")
	demoted          = paged("reclaim_demoted", "pages moved to slower memory instead of being reclaimed, by who did", "by")
	lruScanned       = paged("reclaim_scanned_type", "pages that reclaim looked at, by what is in them", "type")
	lruReclaimed     = paged("reclaim_reclaimed_type", "pages that were reclaimed, by what was in them", "type")
	inodeSteal       = paged("reclaim_inode", "pages of the page cache freed with the inodes that reclaim freed, by who did", "by")
	watermarkHit     = happened("kswapd_watermark_hit", "times memory fell below a watermark again right after kswapd had stopped", "watermark")
	zoneReclaim      = happened("zone_reclaim", "attempts to reclaim on a node before using another", "result")
	dropped          = happened("caches_dropped", "times someone had caches dropped (vm.drop_caches)", "cache")
	refault          = paged("workingset_refault", "pages read again after they were evicted", "type")
	refaultActivated = paged("workingset_activate", "pages read again so soon that they are active at once", "type")
	refaultRestored  = paged("workingset_restore", "pages read again that were active when they were evicted", "type")
	migrated         = paged("migrated", "pages moved in memory, or that could not be", "result")
	hugetlbAllocated = happened("hugetlb_allocated", "attempts to get a hugepage for the pools", "result")
	cmaAllocated     = paged("cma_allocated", "pages asked for from contiguous areas", "result")
	thpExceeded      = happened("thp_scan_exceeded", "times small pages were not replaced because too many of them were of a kind", "kind")
	thpMigrated      = happened("thp_migrated", "transparent hugepages moved, or that could not be", "result")
	mapSplits        = happened("direct_map_splits", "pages of the kernel's own map split into smaller ones", "size")
	mapCollapses     = happened("direct_map_collapses", "small pages of the kernel's own map made one", "size")
	vmaLock          = happened("vma_lock", "faults by how far the lock of the one mapping was enough", "result")
)

// vmstatTable is /proc/vmstat (mm/vmstat.c, vmstat_text). What /proc/meminfo
// has too is left out here.
var vmstatTable = []row{

	// Where pages came from (Documentation/admin-guide/numastat.rst), under the names of the original.
	{key: "numa_hit", desc: happened("numa_hit", "pages allocated on the node where they were wanted")},
	{key: "numa_miss", desc: happened("numa_miss", "pages allocated on another node than the one where they were wanted")},
	{key: "numa_foreign", desc: happened("numa_foreign", "pages wanted on a node and allocated on another")},
	{key: "numa_interleave", desc: happened("numa_interleave", "interleaved pages allocated on the node where they were wanted")},
	{key: "numa_local", desc: happened("numa_local", "pages allocated on the node of the CPU that asked")},
	{key: "numa_other", desc: happened("numa_other", "pages allocated on another node than that of the CPU that asked")},

	// NUMA balancing.
	{key: "numa_pte_updates", desc: paged("numa_pte_updates", "pages made to fault so that it is seen who uses them")},
	{key: "numa_huge_pte_updates", desc: happened("numa_huge_pte_updates", "hugepages made to fault so that it is seen who uses them")},
	{key: "numa_hint_faults_local", desc: hintFaults, values: []string{"local"}},
	{key: "numa_hint_faults", desc: hintFaults, values: []string{"remote"}, less: "numa_hint_faults_local"},
	{key: "numa_pages_migrated", desc: paged("numa_pages_migrated", "pages moved to the node that uses them")},
	{key: "numa_task_migrated", desc: happened("numa_task_migrated", "tasks moved to the node of their memory")},
	{key: "numa_task_swapped", desc: happened("numa_task_swapped", "tasks that changed places with one of another node")},

	// Faults, and what goes to and from disks.
	{key: "pgmajfault", desc: pageFaults, values: []string{"major"}},
	{key: "pgfault", desc: pageFaults, values: []string{"minor"}, less: "pgmajfault"},
	{key: "pgpgin", desc: diskPaging, values: []string{"in"}, scale: 1024},
	{key: "pgpgout", desc: diskPaging, values: []string{"out"}, scale: 1024},
	{key: "pswpin", desc: swapped, values: []string{"in"}, scale: pageSize},
	{key: "pswpout", desc: swapped, values: []string{"out"}, scale: pageSize},
	{key: "swap_ra", desc: paged("swap_readahead", "pages that were read from swap ahead of time")},
	{key: "swap_ra_hit", desc: paged("swap_readahead_hit", "pages read from swap ahead of time that were then wanted")},
	{key: "swpin_zero", desc: swappedZero, values: []string{"in"}},
	{key: "swpout_zero", desc: swappedZero, values: []string{"out"}},
	{key: "zswpin", desc: zswapped, values: []string{"in"}},
	{key: "zswpout", desc: zswapped, values: []string{"out"}},
	{key: "zswpwb", desc: paged("zswap_written_back", "pages that zswap wrote to the swap device")},
	{key: "nr_dirtied", desc: bytesOf("dirtied", "memory of the page cache that became dirty"), scale: pageSize},
	{key: "nr_written", desc: bytesOf("written", "memory of the page cache that was written to disk"), scale: pageSize},
	{key: "nr_throttled_written", desc: bytesOf("written_throttled", "memory written to disk while reclaim waited for it"), scale: pageSize},
	{key: "nr_dirty_threshold", desc: bytesNow("dirty_threshold", "dirty memory at which writers are made to wait"), scale: pageSize},
	{key: "nr_dirty_background_threshold", desc: bytesNow("dirty_background_threshold", "dirty memory at which the kernel begins to write in the background"), scale: pageSize},

	// Allocation.
	{key: "pgalloc_dma", desc: allocated, values: []string{"dma"}},
	{key: "pgalloc_dma32", desc: allocated, values: []string{"dma32"}},
	{key: "pgalloc_normal", desc: allocated, values: []string{"normal"}},
	{key: "pgalloc_high", desc: allocated, values: []string{"high"}},
	{key: "pgalloc_movable", desc: allocated, values: []string{"movable"}},
	{key: "pgalloc_device", desc: allocated, values: []string{"device"}},
	{key: "pgfree", desc: paged("freed", "pages given back to the page allocator")},
	{key: "allocstall_dma", desc: allocationStalls, values: []string{"dma"}},
	{key: "allocstall_dma32", desc: allocationStalls, values: []string{"dma32"}},
	{key: "allocstall_normal", desc: allocationStalls, values: []string{"normal"}},
	{key: "allocstall_high", desc: allocationStalls, values: []string{"high"}},
	{key: "allocstall_movable", desc: allocationStalls, values: []string{"movable"}},
	{key: "allocstall_device", desc: allocationStalls, values: []string{"device"}},
	{key: "oom_kill", desc: happened("oom_kill", "processes killed for want of memory, in cgroups too")},
	{key: "nr_isolated_anon", desc: isolated, values: []string{"anon"}, scale: pageSize},
	{key: "nr_isolated_file", desc: isolated, values: []string{"file"}, scale: pageSize},
	{key: "nr_zspages", desc: bytesNow("zsmalloc", "memory of zsmalloc, which zram and zswap keep compressed pages in"), scale: pageSize},
	{key: "nr_iommu_pages", desc: bytesNow("iommu", "page tables of IOMMUs"), scale: pageSize},
	{key: "nr_foll_pin_acquired", desc: pinned, values: []string{"pin"}},
	{key: "nr_foll_pin_released", desc: pinned, values: []string{"unpin"}},

	// Reclaim.
	{key: "pgscan_kswapd", desc: scanned, values: []string{"kswapd"}},
	{key: "pgscan_direct", desc: scanned, values: []string{"direct"}},
	{key: "pgscan_khugepaged", desc: scanned, values: []string{"khugepaged"}},
	{key: "pgscan_proactive", desc: scanned, values: []string{"proactive"}},
	{key: "pgsteal_kswapd", desc: reclaimed, values: []string{"kswapd"}},
	{key: "pgsteal_direct", desc: reclaimed, values: []string{"direct"}},
	{key: "pgsteal_khugepaged", desc: reclaimed, values: []string{"khugepaged"}},
	{key: "pgsteal_proactive", desc: reclaimed, values: []string{"proactive"}},
	{key: "pgdemote_kswapd", desc: demoted, values: []string{"kswapd"}},
	{key: "pgdemote_direct", desc: demoted, values: []string{"direct"}},
	{key: "pgdemote_khugepaged", desc: demoted, values: []string{"khugepaged"}},
	{key: "pgdemote_proactive", desc: demoted, values: []string{"proactive"}},
	{key: "pgscan_anon", desc: lruScanned, values: []string{"anon"}},
	{key: "pgscan_file", desc: lruScanned, values: []string{"file"}},
	{key: "pgsteal_anon", desc: lruReclaimed, values: []string{"anon"}},
	{key: "pgsteal_file", desc: lruReclaimed, values: []string{"file"}},
	{key: "pgpromote_success", desc: paged("promoted", "pages moved to faster memory")},
	{key: "pgpromote_candidate", desc: paged("promotion_candidates", "pages found worth moving to faster memory")},
	{key: "pgscan_direct_throttle", desc: happened("reclaim_throttled", "times a task had to wait before it could reclaim")},
	{key: "pgrefill", desc: paged("lru_refilled", "pages looked at on the active lists")},
	{key: "pgactivate", desc: paged("lru_activated", "pages moved to the active lists")},
	{key: "pgdeactivate", desc: paged("lru_deactivated", "pages moved to the inactive lists")},
	{key: "pgrotated", desc: paged("lru_rotated", "pages moved to the end of the inactive lists, to be reclaimed next")},
	{key: "pglazyfree", desc: paged("lazy_free", "pages that programs marked as no longer needed")},
	{key: "pglazyfreed", desc: paged("lazy_freed", "pages marked as no longer needed that were reclaimed")},
	{key: "pgreuse", desc: paged("reused", "copy-on-write pages that did not have to be copied")},
	{key: "slabs_scanned", desc: happened("slab_scanned", "objects of kernel caches looked at by reclaim")},
	{key: "pginodesteal", desc: inodeSteal, values: []string{"direct"}},
	{key: "kswapd_inodesteal", desc: inodeSteal, values: []string{"kswapd"}},
	{key: "pageoutrun", desc: happened("kswapd_runs", "times kswapd began to balance a node")},
	{key: "kswapd_low_wmark_hit_quickly", desc: watermarkHit, values: []string{"low"}},
	{key: "kswapd_high_wmark_hit_quickly", desc: watermarkHit, values: []string{"high"}},
	{key: "zone_reclaim_success", desc: zoneReclaim, values: []string{"success"}},
	{key: "zone_reclaim_failed", desc: zoneReclaim, values: []string{"failed"}},
	{key: "nr_vmscan_write", desc: paged("reclaim_written", "pages that reclaim wrote to disk")},
	{key: "nr_vmscan_immediate_reclaim", desc: paged("reclaim_immediate", "pages marked for reclaim as soon as they are written")},
	{key: "drop_pagecache", desc: dropped, values: []string{"pagecache"}},
	{key: "drop_slab", desc: dropped, values: []string{"slab"}},
	{key: "workingset_nodes", desc: gaugeOf(vmstat, "memory_workingset_nodes", metric.None, "nodes of the page cache's trees that remember evicted pages")},
	{key: "workingset_refault_anon", desc: refault, values: []string{"anon"}},
	{key: "workingset_refault_file", desc: refault, values: []string{"file"}},
	{key: "workingset_activate_anon", desc: refaultActivated, values: []string{"anon"}},
	{key: "workingset_activate_file", desc: refaultActivated, values: []string{"file"}},
	{key: "workingset_restore_anon", desc: refaultRestored, values: []string{"anon"}},
	{key: "workingset_restore_file", desc: refaultRestored, values: []string{"file"}},
	{key: "workingset_nodereclaim", desc: happened("workingset_nodes_reclaimed", "nodes of the page cache's trees that were reclaimed")},

	// Pages that cannot be reclaimed.
	{key: "unevictable_pgs_culled", desc: paged("unevictable_culled", "pages moved to the list of those that cannot be reclaimed")},
	{key: "unevictable_pgs_scanned", desc: paged("unevictable_scanned", "pages of that list looked at")},
	{key: "unevictable_pgs_rescued", desc: paged("unevictable_rescued", "pages moved away from that list")},
	{key: "unevictable_pgs_mlocked", desc: paged("unevictable_mlocked", "pages that were locked")},
	{key: "unevictable_pgs_munlocked", desc: paged("unevictable_munlocked", "pages that were unlocked")},
	{key: "unevictable_pgs_cleared", desc: paged("unevictable_cleared", "locked pages that were unlocked as they went away")},
	{key: "unevictable_pgs_stranded", desc: paged("unevictable_stranded", "unlocked pages that could not be moved at once")},

	// Migration and compaction.
	{key: "pgmigrate_success", desc: migrated, values: []string{"success"}},
	{key: "pgmigrate_fail", desc: migrated, values: []string{"failed"}},
	{key: "compact_migrate_scanned", desc: paged("compact_migrate_scanned", "pages looked at by compaction as to whether they can move")},
	{key: "compact_free_scanned", desc: paged("compact_free_scanned", "pages looked at by compaction as places to move to")},
	{key: "compact_isolated", desc: paged("compact_isolated", "pages taken off their lists by compaction")},
	{key: "compact_stall", desc: happened("compact_stall", "times a task compacted memory itself to get a large block")},
	{key: "compact_success", desc: happened("compact_success", "times that gave the block")},
	{key: "compact_fail", desc: happened("compact_fail", "times that did not give the block")},
	{key: "compact_daemon_wake", desc: happened("compact_daemon_wake", "times kcompactd was woken")},
	{key: "compact_daemon_migrate_scanned", desc: paged("compact_daemon_migrate_scanned", "pages looked at by kcompactd as to whether they can move")},
	{key: "compact_daemon_free_scanned", desc: paged("compact_daemon_free_scanned", "pages looked at by kcompactd as places to move to")},
	{key: "htlb_buddy_alloc_success", desc: hugetlbAllocated, values: []string{"success"}},
	{key: "htlb_buddy_alloc_fail", desc: hugetlbAllocated, values: []string{"failed"}},
	{key: "cma_alloc_success", desc: cmaAllocated, values: []string{"success"}},
	{key: "cma_alloc_fail", desc: cmaAllocated, values: []string{"failed"}},
	{key: "cma_release_success", desc: paged("cma_released", "pages given back to contiguous areas")},

	// Transparent hugepages (Documentation/admin-guide/mm/transhuge.rst).
	{key: "thp_fault_alloc", desc: happened("thp_fault_alloc", "transparent hugepages allocated at a fault")},
	{key: "thp_fault_fallback", desc: happened("thp_fault_fallback", "faults that got small pages for want of a hugepage")},
	{key: "thp_fault_fallback_charge", desc: happened("thp_fault_fallback_charge", "faults that got small pages because the cgroup had no room")},
	{key: "thp_collapse_alloc", desc: happened("thp_collapse_alloc", "transparent hugepages allocated to replace small pages")},
	{key: "thp_collapse_alloc_failed", desc: happened("thp_collapse_alloc_failed", "small pages not replaced for want of a hugepage")},
	{key: "thp_file_alloc", desc: happened("thp_file_alloc", "transparent hugepages allocated for files")},
	{key: "thp_file_fallback", desc: happened("thp_file_fallback", "files that got small pages for want of a hugepage")},
	{key: "thp_file_fallback_charge", desc: happened("thp_file_fallback_charge", "files that got small pages because the cgroup had no room")},
	{key: "thp_file_mapped", desc: happened("thp_file_mapped", "transparent hugepages of files mapped into a process")},
	{key: "thp_split_page", desc: happened("thp_split_page", "transparent hugepages split into small pages")},
	{key: "thp_split_page_failed", desc: happened("thp_split_page_failed", "transparent hugepages that could not be split")},
	{key: "thp_deferred_split_page", desc: happened("thp_deferred_split_page", "transparent hugepages put on the list of those to split")},
	{key: "thp_underused_split_page", desc: happened("thp_underused_split_page", "transparent hugepages put on that list because most of them is unused")},
	{key: "thp_split_pmd", desc: happened("thp_split_pmd", "mappings of a transparent hugepage split into those of small pages")},
	{key: "thp_split_pud", desc: happened("thp_split_pud", "mappings of a gigantic page split")},
	{key: "thp_scan_exceed_none_pte", desc: thpExceeded, values: []string{"none"}},
	{key: "thp_scan_exceed_swap_pte", desc: thpExceeded, values: []string{"swap"}},
	{key: "thp_scan_exceed_share_pte", desc: thpExceeded, values: []string{"shared"}},
	{key: "thp_zero_page_alloc", desc: happened("thp_zero_page_alloc", "hugepages of zeros allocated")},
	{key: "thp_zero_page_alloc_failed", desc: happened("thp_zero_page_alloc_failed", "hugepages of zeros that could not be allocated")},
	{key: "thp_swpout", desc: happened("thp_swpout", "transparent hugepages swapped out whole")},
	{key: "thp_swpout_fallback", desc: happened("thp_swpout_fallback", "transparent hugepages split to be swapped out")},
	{key: "thp_migration_success", desc: thpMigrated, values: []string{"success"}},
	{key: "thp_migration_fail", desc: thpMigrated, values: []string{"failed"}},
	{key: "thp_migration_split", desc: happened("thp_migration_split", "transparent hugepages split to be moved")},

	// The rest.
	{key: "balloon_inflate", desc: paged("balloon_inflated", "pages given back to the hypervisor")},
	{key: "balloon_deflate", desc: paged("balloon_deflated", "pages got back from the hypervisor")},
	{key: "balloon_migrate", desc: paged("balloon_migrated", "pages of the balloon that were moved")},
	{key: "ksm_swpin_copy", desc: paged("ksm_swapin_copied", "merged pages copied as they were swapped in")},
	{key: "cow_ksm", desc: paged("ksm_copied", "merged pages copied because one user wrote to them")},
	{key: "direct_map_level2_splits", desc: mapSplits, values: []string{"2M"}},
	{key: "direct_map_level3_splits", desc: mapSplits, values: []string{"1G"}},
	{key: "direct_map_level2_collapses", desc: mapCollapses, values: []string{"2M"}},
	{key: "direct_map_level3_collapses", desc: mapCollapses, values: []string{"1G"}},
	{key: "vma_lock_success", desc: vmaLock, values: []string{"success"}},
	{key: "vma_lock_abort", desc: vmaLock, values: []string{"abort"}},
	{key: "vma_lock_retry", desc: vmaLock, values: []string{"retry"}},
	{key: "vma_lock_miss", desc: vmaLock, values: []string{"miss"}}}
