// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
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
	Born int64  // when it was first seen, Unix nanoseconds; 0: it was there before it was looked for
}

// CgroupOptions say what is tracked.
type CgroupOptions struct {
	Mount string // of the hierarchy
	Limit int    // most cgroups that are known at once; 0: 65,536
	// Rescan is how often the tree is walked while watches alone do not show
	// all of it; 0: a second. A walk takes at most a twentieth of the time,
	// so a large tree is walked less often.
	Rescan time.Duration
	Log    *slog.Logger // nil: nothing is said
}

// Cgroups knows the control groups of a hierarchy from their birth to their
// death. Births and deaths come by inotify(7), one watch a directory. Where
// the watches do not suffice the tree is walked every now and then, and what
// lives for less than that is not seen.
type Cgroups struct {
	mount   string
	limit   int
	rescan  time.Duration
	log     *slog.Logger
	inotify int
	wake    [2]int // a pipe that ends the tracker
	done    chan struct{}
	closing sync.Once

	generation atomic.Uint64
	untracked  atomic.Int64
	unwatched  atomic.Int64
	warned     bool // of unwatched cgroups

	mu      sync.Mutex // over all below; only the tracker's goroutine changes the tree
	root    *node
	count   int
	watches map[int32]*node
	due     time.Time // when the tree may be walked again
	members []Cgroup  // of this generation; nil: not asked for yet
	notify  []func(born, died []Cgroup)
	born    []Cgroup // not yet told
	died    []Cgroup
}

// node is a tracked directory.
type node struct {
	Cgroup
	watch    int32 // -1: none
	children map[string]*node
}

// TrackCgroups walks the hierarchy and then follows it until Close.
func TrackCgroups(opts CgroupOptions) (*Cgroups, error) {
	c := &Cgroups{mount: filepath.Clean(opts.Mount), limit: cmp.Or(opts.Limit, 65536), log: opts.Log,
		rescan: cmp.Or(opts.Rescan, time.Second), done: make(chan struct{}), watches: map[int32]*node{}}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	var stat unix.Stat_t
	if err := unix.Stat(c.mount, &stat); err != nil {
		return nil, fmt.Errorf("track cgroups: %w", &os.PathError{Op: "stat", Path: c.mount, Err: err})
	}
	var err error
	if c.inotify, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		return nil, fmt.Errorf("track cgroups: inotify (see fs.inotify.max_user_instances): %w", err)
	}
	if err := unix.Pipe2(c.wake[:], unix.O_CLOEXEC); err != nil {
		return nil, errors.Join(fmt.Errorf("track cgroups: %w", err), unix.Close(c.inotify))
	}
	c.root = c.bear("/", stat.Ino)
	c.walk()
	c.born, c.died = nil, nil
	c.generation.Store(1)
	go c.follow()
	return c, nil
}

// Mount is where the hierarchy is mounted.
func (c *Cgroups) Mount() string { return c.mount }

// Generation changes with the membership.
func (c *Cgroups) Generation() uint64 { return c.generation.Load() }

// Untracked is how many cgroups were found that are not tracked because of
// the limit, those below them not counted. It is counted anew when there is
// room again.
func (c *Cgroups) Untracked() int { return int(c.untracked.Load()) }

// Unwatched is how many of the tracked cgroups have no watch, because
// fs.inotify.max_user_watches is reached. While there are any, the tree is
// walked every now and then.
func (c *Cgroups) Unwatched() int { return int(c.unwatched.Load()) }

// Members lists the cgroups there are, sorted by path. The slice is not
// changed any more. It must not be called from a subscriber.
func (c *Cgroups) Members() []Cgroup {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sorted()
}

func (c *Cgroups) sorted() []Cgroup {
	if c.members == nil {
		c.members = c.root.appendAll(make([]Cgroup, 0, c.count))
		slices.SortFunc(c.members, func(a, b Cgroup) int { return cmp.Compare(a.Path, b.Path) })
	}
	return c.members
}

func (g *node) appendAll(to []Cgroup) []Cgroup {
	to = append(to, g.Cgroup)
	for _, child := range g.children {
		to = child.appendAll(to)
	}
	return to
}

// Subscribe calls f at once with all there are, and from then on, from the
// tracker's goroutine, with those that died and that were born, in this order:
// one may have the name or, in v1, the ID of the other. A cgroup that was gone
// before it could be told of is in neither. The slices are f's to keep.
func (c *Cgroups) Subscribe(f func(born, died []Cgroup)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notify = append(c.notify, f)
	f(c.sorted(), nil)
}

// Close ends the tracking. It is safe to call twice.
func (c *Cgroups) Close() error {
	var err error
	c.closing.Do(func() {
		_, werr := unix.Write(c.wake[1], []byte{0})
		<-c.done
		err = errors.Join(werr, unix.Close(c.inotify), unix.Close(c.wake[0]), unix.Close(c.wake[1]))
	})
	return err
}

// follow waits for events until Close.
func (c *Cgroups) follow() {
	defer close(c.done)
	buf := make([]byte, 64<<10)
	for {
		polled := []unix.PollFd{{Fd: int32(c.inotify), Events: unix.POLLIN}, {Fd: int32(c.wake[0]), Events: unix.POLLIN}}
		if _, err := unix.Poll(polled, c.patience()); err != nil && err != unix.EINTR {
			c.log.Error("cgroups are no longer followed", "error", err)
			return
		}
		if polled[1].Revents != 0 {
			return
		}
		c.mu.Lock()
		if n, err := unix.Read(c.inotify, buf); err == nil {
			c.events(buf[:n])
		}
		if c.partial() && !time.Now().Before(c.due) {
			c.walk()
		}
		c.tell()
		c.mu.Unlock()
	}
}

// partial tells that a walk may find what the watches do not show.
func (c *Cgroups) partial() bool {
	return c.unwatched.Load() > 0 || c.untracked.Load() > 0 && c.count < c.limit
}

// patience is how long to wait for events, as poll(2) has it.
func (c *Cgroups) patience() int {
	if !c.partial() {
		return -1
	}
	return int(max(0, time.Until(c.due)).Milliseconds()) + 1
}

// tell hands on what changed. Callers hold mu.
func (c *Cgroups) tell() {
	c.born, c.died = without(c.born, c.died), without(c.died, c.born)
	if len(c.born)+len(c.died) == 0 {
		return
	}
	c.members = nil
	c.generation.Add(1)
	for _, f := range c.notify {
		f(c.born, c.died)
	}
	c.born, c.died = nil, nil
}

// without are those of all that are not among others.
func without(all, others []Cgroup) []Cgroup {
	if len(all) == 0 || len(others) == 0 {
		return all
	}
	known := make(map[Cgroup]bool, len(others))
	for _, g := range others {
		known[g] = true
	}
	var left []Cgroup
	for _, g := range all {
		if !known[g] {
			left = append(left, g)
		}
	}
	return left
}
