// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Cgroup is one control group of the tracked hierarchy.
type Cgroup struct {
	ID   uint64 // kernfs id, which is the inode number of its directory
	Path string // within the hierarchy; the root is "/"
	Born int64  // Unix nanoseconds; 0: it was there before it was looked for
}

// CgroupOptions say what is tracked.
type CgroupOptions struct {
	Mount string // of the hierarchy
	Limit int    // most cgroups that are known at once; 0: 65,536
	// Rescan is how often the tree is walked when the kernel's watches do
	// not suffice (fs.inotify.max_user_watches); 0: a second.
	Rescan time.Duration
	Log    *slog.Logger
}

// Cgroups knows the control groups of a hierarchy from their birth to their
// death. Births and deaths come by inotify(7), one watch a directory.
type Cgroups struct {
	mount   string
	limit   int
	log     *slog.Logger
	fd      int
	wake    [2]int // a pipe that ends the tracker
	done    chan struct{}
	closing sync.Once
	rescan  time.Duration

	generation atomic.Uint64
	dropped    atomic.Uint64

	mu        sync.Mutex
	byPath    map[string]*tracked
	byWatch   map[int32]string
	unwatched bool // some directory has no watch: walk every now and then
	notify    []func(born, died []Cgroup)
	born      []Cgroup // not yet told
	died      []Cgroup
}

type tracked struct {
	Cgroup
	watch int32 // -1: none
}

// TrackCgroups walks the hierarchy and then follows it until Close.
func TrackCgroups(opts CgroupOptions) (*Cgroups, error) {
	c := &Cgroups{mount: filepath.Clean(opts.Mount), limit: cmp.Or(opts.Limit, 65536), log: opts.Log,
		rescan: cmp.Or(opts.Rescan, time.Second), done: make(chan struct{}),
		byPath: map[string]*tracked{}, byWatch: map[int32]string{}}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if _, err := os.Stat(c.mount); err != nil {
		return nil, fmt.Errorf("track cgroups: %w", err)
	}
	var err error
	if c.fd, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		return nil, fmt.Errorf("track cgroups: inotify: %w", err)
	}
	if err := unix.Pipe2(c.wake[:], unix.O_CLOEXEC); err != nil {
		return nil, errors.Join(fmt.Errorf("track cgroups: %w", err), unix.Close(c.fd))
	}
	c.walk()
	c.born, c.died = nil, nil
	c.generation.Store(1)
	go c.follow()
	return c, nil
}

// Generation changes with the membership.
func (c *Cgroups) Generation() uint64 { return c.generation.Load() }

// Dropped counts the cgroups that were not tracked because of the limit.
func (c *Cgroups) Dropped() uint64 { return c.dropped.Load() }

// Members lists the cgroups there are, sorted by path.
func (c *Cgroups) Members() []Cgroup {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members()
}

func (c *Cgroups) members() []Cgroup {
	all := make([]Cgroup, 0, len(c.byPath))
	for _, t := range c.byPath {
		all = append(all, t.Cgroup)
	}
	slices.SortFunc(all, func(a, b Cgroup) int { return cmp.Compare(a.Path, b.Path) })
	return all
}

// Subscribe calls f at once with all there are, and from then on, from the
// tracker's goroutine, with those that were born and died.
func (c *Cgroups) Subscribe(f func(born, died []Cgroup)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notify = append(c.notify, f)
	f(c.members(), nil)
}

// Close ends the tracking. It is safe to call twice.
func (c *Cgroups) Close() error {
	var err error
	c.closing.Do(func() {
		_, werr := unix.Write(c.wake[1], []byte{0})
		<-c.done
		err = errors.Join(werr, unix.Close(c.fd), unix.Close(c.wake[0]), unix.Close(c.wake[1]))
	})
	return err
}

// follow waits for events until Close.
func (c *Cgroups) follow() {
	defer close(c.done)
	buf := make([]byte, 64<<10)
	for {
		timeout := -1
		if c.unwatched {
			timeout = int(c.rescan.Milliseconds())
		}
		polled := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}, {Fd: int32(c.wake[0]), Events: unix.POLLIN}}
		n, err := unix.Poll(polled, timeout)
		if err != nil && err != unix.EINTR {
			c.log.Error("cgroups are no longer followed", "error", err)
			return
		}
		if polled[1].Revents != 0 {
			return
		}
		c.mu.Lock()
		if n == 0 && err == nil {
			c.walk()
		} else if n, err := unix.Read(c.fd, buf); err == nil {
			c.events(buf[:n])
		}
		c.tell()
		c.mu.Unlock()
	}
}

// tell hands on what changed. Callers hold mu.
func (c *Cgroups) tell() {
	if len(c.born)+len(c.died) == 0 {
		return
	}
	c.generation.Add(1)
	for _, f := range c.notify {
		f(c.born, c.died)
	}
	c.born, c.died = nil, nil
}

// walk brings the members in line with the tree.
func (c *Cgroups) walk() {
	c.unwatched = false
	there := map[string]bool{}
	c.enter("/", there)
	for _, path := range slices.Sorted(maps.Keys(c.byPath)) {
		if !there[path] {
			c.remove(path)
		}
	}
}

// enter adds the directory at path and all below it. The watch comes before
// the listing, so that a birth is in one of the two.
func (c *Cgroups) enter(path string, there map[string]bool) {
	dir := filepath.Join(c.mount, path)
	var stat unix.Stat_t
	if err := unix.Lstat(dir, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return
	}
	if t := c.byPath[path]; t != nil && t.ID != stat.Ino {
		c.remove(path) // another one of the same name
	}
	if c.byPath[path] == nil && !c.add(path, stat.Ino) {
		return
	}
	if c.byPath[path].watch < 0 {
		c.watch(path, dir)
	}
	if there != nil {
		there[path] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("cannot list cgroups", "path", path, "error", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			c.enter(filepath.Join(path, e.Name()), there)
		}
	}
}

func (c *Cgroups) add(path string, id uint64) bool {
	if len(c.byPath) >= c.limit {
		c.dropped.Add(1)
		return false
	}
	g := Cgroup{ID: id, Path: path}
	if c.generation.Load() > 0 {
		g.Born = Wall()
	}
	c.byPath[path] = &tracked{Cgroup: g, watch: -1}
	c.born = append(c.born, g)
	return true
}

func (c *Cgroups) watch(path, dir string) {
	w, err := unix.InotifyAddWatch(c.fd, dir, unix.IN_CREATE|unix.IN_DELETE|unix.IN_ONLYDIR|unix.IN_DONT_FOLLOW)
	if err != nil {
		if !c.unwatched && !errors.Is(err, unix.ENOENT) {
			c.log.Warn("cgroups are walked instead of watched; raise fs.inotify.max_user_watches", "error", err)
		}
		c.unwatched = true
		return
	}
	c.byPath[path].watch = int32(w)
	c.byWatch[int32(w)] = path
}

// remove ends path and all below it.
func (c *Cgroups) remove(path string) {
	for below, t := range c.byPath {
		if below == path || len(below) > len(path) && below[:len(path)] == path && below[len(path)] == '/' {
			delete(c.byPath, below)
			delete(c.byWatch, t.watch)
			c.died = append(c.died, t.Cgroup)
		}
	}
}
