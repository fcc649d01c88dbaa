// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// watched is what changes the tree: mkdir, rmdir and, in v1, rename.
const watched = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR

// walk brings all nodes in line with the tree. Callers hold mu, as for all of
// this file.
func (c *Cgroups) walk() {
	began := time.Now()
	c.untracked.Store(0)
	c.list(c.root)
	c.due = time.Now().Add(max(c.rescan, 20*time.Since(began)))
}

// list looks at everything in g. The watch comes before the listing, so that
// a birth is in one of the two.
func (c *Cgroups) list(g *node) {
	dir := filepath.Join(c.mount, g.Path)
	if g.watch < 0 {
		c.watch(g, dir)
	}
	for name := range g.children {
		c.look(g, name)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
		c.log.Warn("cgroups below are not tracked", "path", g.Path, "error", err)
	}
	for _, e := range entries {
		if e.IsDir() && g.children[e.Name()] == nil {
			c.look(g, e.Name())
		}
	}
}

// look brings the node called name in parent, and all below it, in line with
// the tree.
func (c *Cgroups) look(parent *node, name string) {
	path := filepath.Join(parent.Path, name)
	var stat unix.Stat_t
	err := unix.Lstat(filepath.Join(c.mount, path), &stat)
	there := err == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR
	g := parent.children[name]
	if g != nil && (!there || g.ID != stat.Ino) { // gone, or another one of the same name
		delete(parent.children, name)
		c.bury(g)
		g = nil
	}
	if !there {
		return
	}
	if g == nil {
		if c.count >= c.limit {
			c.untracked.Add(1)
			return
		}
		g = c.bear(path, stat.Ino)
		parent.children[name] = g
	}
	c.list(g)
}

func (c *Cgroups) bear(path string, id uint64) *node {
	g := &node{Cgroup: Cgroup{ID: id, Path: path}, watch: -1, children: map[string]*node{}}
	if c.generation.Load() > 0 {
		g.Born = Wall()
	}
	c.count++
	c.unwatched.Add(1)
	c.born = append(c.born, g.Cgroup)
	return g
}

// bury ends g and all below it. The kernel ends the watches of directories
// that are gone; one that was renamed keeps its watch and is found by it
// again.
func (c *Cgroups) bury(g *node) {
	for _, child := range g.children {
		c.bury(child)
	}
	if g.watch < 0 {
		c.unwatched.Add(-1)
	}
	delete(c.watches, g.watch)
	c.count--
	c.died = append(c.died, g.Cgroup)
}

func (c *Cgroups) watch(g *node, dir string) {
	w, err := unix.InotifyAddWatch(c.inotify, dir, watched)
	switch {
	case err == nil:
		g.watch = int32(w)
		c.watches[g.watch] = g
		c.unwatched.Add(-1)
	case errors.Is(err, unix.ENOSPC) && !c.warned:
		c.warned = true
		c.log.Warn("cgroups are walked instead of watched; raise fs.inotify.max_user_watches", "rescan", c.rescan)
	}
}
