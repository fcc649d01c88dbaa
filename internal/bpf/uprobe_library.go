// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// findLibrary finds a shared library in the folders that the dynamic linker
// searches, by its file's name (libc.so.6) or by its short one: c and libc
// stand for libc.so and libc.so.*.
func findLibrary(root, name string) (string, error) {
	patterns := []string{name}
	if !strings.Contains(name, ".so") {
		patterns = []string{name + ".so", name + ".so.*", "lib" + name + ".so", "lib" + name + ".so.*"}
	}
	folders := libraryFolders(root)
	for _, folder := range folders {
		found, err := librariesIn(folder, patterns)
		switch {
		case err != nil:
			return "", wrongFunction("library %s: %w", name, err)
		case len(found) > 1:
			return "", wrongFunction("library %s can be %s; name one", name, strings.Join(found, " or "))
		case len(found) == 1:
			return found[0], nil
		}
	}
	return "", wrongFunction("no library %s in %s; give its path", name, strings.Join(folders, ", "))
}

// librariesIn are the libraries in a folder that match, each file once.
func librariesIn(folder string, patterns []string) ([]string, error) {
	var found []string
	var files []os.FileInfo
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			info, err := os.Stat(path)
			if err != nil || slices.ContainsFunc(files, func(f os.FileInfo) bool { return os.SameFile(f, info) }) || !isLibrary(path) {
				continue
			}
			found, files = append(found, path), append(files, info)
		}
	}
	return found, nil
}

// isLibrary leaves out linker scripts, under which developers' packages hide
// libraries (libc.so), and those of other machines.
func isLibrary(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = openELF(f)
	return err == nil
}

// libraryFolders are those of ld.so(8): what ld.so.conf and its folder name,
// then the usual ones.
func libraryFolders(root string) []string {
	confs, err := filepath.Glob(filepath.Join(root, "etc/ld.so.conf.d/*.conf"))
	if err != nil {
		confs = nil // only a bad pattern
	}
	var folders []string
	for _, conf := range append([]string{filepath.Join(root, "etc/ld.so.conf")}, confs...) {
		text, err := os.ReadFile(conf)
		if err != nil {
			continue // it need not be there
		}
		for line := range strings.Lines(string(text)) {
			line, _, _ = strings.Cut(line, "#")
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "/") {
				folders = append(folders, filepath.Join(root, line))
			}
		}
	}
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	for _, usual := range []string{"lib/" + triplet, "usr/lib/" + triplet, "lib64", "usr/lib64", "usr/local/lib64", "lib", "usr/lib", "usr/local/lib"} {
		folders = append(folders, filepath.Join(root, usual))
	}
	var once []string
	for _, f := range folders {
		if !slices.Contains(once, f) {
			once = append(once, f)
		}
	}
	return once
}
