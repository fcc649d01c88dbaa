// SPDX-License-Identifier: Apache-2.0

package bpf

// Cgroups is the domain of control groups, by kernfs id: the inode number of a
// group's directory. Its label is name, the path in the hierarchy, which is
// that of the v1 cpu controller or the unified one. limit counts Other in.
func Cgroups(limit int, v1 bool) Domain {
	return Domain{Name: "cgroup", Slots: limit, Bytes: 8 << 20, Constants: map[string]any{"rz_cgroup_v1": v1}}
}

// Disks is the domain of block devices, by dev_t (major << 20 | minor). Its
// label is device.
func Disks() Domain { return Domain{Name: "block", Slots: 32, Bytes: 4 << 20, Quiet: true} }

// Interfaces is the domain of the network interfaces of the agent's network
// namespace, by namespace (its inode number << 32) | index. Its labels are
// interface and kind. Other namespaces' interfaces are Other.
func Interfaces() Domain { return Domain{Name: "net", Slots: 128, Bytes: 1 << 20, Quiet: true} }
