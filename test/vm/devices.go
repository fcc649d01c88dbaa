// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// wanted are the modules that tests need and distributions' kernels do not have
// built in. Btrfs asks for its checksums by algorithm, not by module.
var wanted = []string{"nvme", "loop", "veth", "tun", "dummy", "tcp_diag", "xfs", "ata_piix", "sd_mod",
	"crc32c_generic", "xxhash_generic", "sha256_generic", "blake2b_generic", "btrfs"}

// addModules puts the wanted modules, and those that they need before them,
// into the initramfs, numbered in the order in which they can be loaded. A
// module that is not there is built in.
func (m machine) addModules(a *archive) error {
	from := filepath.Join(".cache/kernels", m.kernel+"-"+m.arch+".modules")
	added, count := map[string]bool{}, 0
	var add func(name string) error
	add = func(name string) error {
		name = strings.ReplaceAll(name, "-", "_")
		if added[name] {
			return nil
		}
		added[name] = true
		path := modulePath(from, name)
		if path == "" {
			return nil
		}
		needs, err := moduleNeeds(path)
		if err != nil {
			return err
		}
		for _, n := range needs {
			if err := add(n); err != nil {
				return err
			}
		}
		count++
		a.file(filepath.Join("modules", fmt.Sprintf("%03d-%s.ko", count, name)), path, 0o644)
		return nil
	}
	for _, name := range wanted {
		if err := add(name); err != nil {
			return err
		}
	}
	return nil
}

// modulePath finds a module, whose file may have dashes for underscores.
func modulePath(folder, name string) string {
	found, err := filepath.Glob(filepath.Join(folder, strings.ReplaceAll(name, "_", "?")+".ko"))
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[0]
}

// moduleNeeds are the modules that must be loaded before this one: depends and
// softdep in the section .modinfo of the module.
func moduleNeeds(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read module %s: %w", path, err)
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("module %s has no .modinfo", path)
	}
	text, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("read module %s: %w", path, err)
	}
	var needs []string
	for line := range bytes.SplitSeq(text, []byte{0}) {
		key, value, _ := strings.Cut(string(line), "=")
		switch key {
		case "depends":
			needs = append(needs, strings.FieldsFunc(value, func(r rune) bool { return r == ',' })...)
		case "softdep":
			if pre, ok := strings.CutPrefix(value, "pre: "); ok {
				needs = append(needs, strings.Fields(pre)...)
			}
		}
	}
	return needs, nil
}

// fileSystems are made on a disk each, in the order of the machine's NVMe
// controllers; init mounts them at /mnt/NAME.
var fileSystems = []struct {
	make string
	size int64 // the least that each takes, sparse
}{
	{"mkfs.ext4 -q -F", 64 << 20}, {"mkfs.xfs -q -f", 320 << 20}, {"mkfs.btrfs -q -f", 128 << 20},
}

func makeDisks(dir string) (disks []string, err error) {
	for i, fs := range fileSystems {
		disk := filepath.Join(dir, fmt.Sprintf("disk%d", i))
		if err := os.WriteFile(disk, nil, 0o600); err != nil {
			return nil, err
		}
		if err := os.Truncate(disk, fs.size); err != nil {
			return nil, err
		}
		args := append(strings.Fields(fs.make), disk)
		cmd := exec.Command("env", append([]string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", fs.make, err, out)
		}
		disks = append(disks, disk)
	}
	return disks, nil
}
