// SPDX-License-Identifier: Apache-2.0

// Package drive asks drives for their health: NVMe by the health log page,
// SATA by SMART. Both go through the kernel's pass-through interfaces and only
// read.
//
// A drive that fails may take minutes to answer or never do, so each is asked
// by a goroutine of its own, and the others are not waited for beyond a few
// seconds.
package drive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

const (
	patience   = 5 * time.Second
	rescan     = int64(5 * time.Minute) // to see a drive that was put in
	every      = time.Minute
	mostDrives = 256
)

// Samplers are the samplers of this package.
func Samplers() []source.Sampler {
	return []source.Sampler{{
		Name: "drivehealth", Reads: "/dev/nvme*, /dev/sd*", Needs: "NVMe or SATA drives, CAP_SYS_ADMIN and CAP_SYS_RAWIO",
		Every: every, Blocking: true,
		Descs: descs(),
		Open:  func() (source.Source, error) { return open("/", kernel{}) },
	}}
}

// identity is what tells a drive from others, for its labels.
type identity struct {
	device, kind, model, serial string
}

func (id identity) labels(d *metric.Desc, extra string) []string {
	values := make([]string, len(d.Keys))
	for i, key := range d.Keys {
		switch key {
		case "device":
			values[i] = id.device
		case "model":
			values[i] = id.model
		case "serial":
			values[i] = id.serial
		case "type":
			values[i] = id.kind
		default:
			values[i] = extra
		}
	}
	return values
}

// find lists the NVMe controllers and SATA drives there are.
func find(root string) []identity {
	var found []identity
	add := func(glob, kind string) {
		paths, err := filepath.Glob(filepath.Join(root, glob))
		if err != nil {
			return
		}
		for _, p := range paths {
			id := identity{device: filepath.Base(p), kind: kind}
			if id.describe(p) && len(found) < mostDrives {
				found = append(found, id)
			}
		}
	}
	add("sys/class/nvme/nvme*", "nvme")
	add("sys/block/sd*", "sata")
	return found
}

// describe fills in what sysfs says, and tells whether it is a drive of its
// kind: the SCSI layer's name for one behind libata has the vendor ATA.
func (id *identity) describe(at string) bool {
	if id.kind == "nvme" {
		id.model, id.serial = text(at, "model"), text(at, "serial")
		return true
	}
	id.model = text(at, "device/model")
	// Vital product data page 0x80: four bytes, then the serial number.
	if page := text(at, "device/vpd_pg80"); len(page) > 4 {
		id.serial = strings.TrimSpace(page[4:])
	}
	return text(at, "device/vendor") == "ATA"
}

func text(elem ...string) string {
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(b), " \n\x00")
}

// answer is what asking a drive gave.
type answer struct {
	health
	err error
}

// worker asks one drive, in a goroutine of its own.
type worker struct {
	identity
	port   device
	ask    chan struct{}
	answer chan answer

	// The reader's own.
	asked     bool
	last      answer
	shown     [readings]bool // of the schema
	highest   [readings]uint64
	start     [readings]int64
	failures  [len(reasons)]uint64
	firstSeen int64
}

// reasons are why a drive's health could not be read.
var reasons = [...]string{"error", "timeout"}

const (
	byError = iota
	byTimeout
)

var errTimeout = errors.New("no answer in time")

func (w *worker) run() {
	for range w.ask {
		h, err := w.port.read()
		w.answer <- answer{h, err} // there is room: it is asked one thing at a time
	}
}

// drives is the source.
type drives struct {
	root    string
	caller  caller
	wait    time.Duration
	workers []*worker
	timer   *time.Timer
	next    int64 // Mono when to look for drives again
	schema  *metric.Schema
}

// open finds the drives of the machine below root.
func open(root string, c caller) (*drives, error) {
	s := &drives{root: root, caller: c, wait: patience, timer: time.NewTimer(time.Hour)}
	s.look()
	if len(s.workers) == 0 {
		s.timer.Stop()
		return nil, source.Unsupported("there is neither an NVMe controller (/sys/class/nvme) nor a SATA drive (/sys/block/sd*)")
	}
	return s, nil
}

// Name is the sampler's.
func (s *drives) Name() string { return "drivehealth" }

// look takes on the drives that appeared and lets go of those that went.
func (s *drives) look() {
	s.next = host.Mono() + rescan
	found := find(s.root)
	var workers []*worker
	for _, id := range found {
		i := slices.IndexFunc(s.workers, func(w *worker) bool { return w != nil && w.identity == id })
		if i >= 0 {
			workers = append(workers, s.workers[i])
			s.workers[i] = nil
			continue
		}
		w := &worker{identity: id, ask: make(chan struct{}, 1), answer: make(chan answer, 1), firstSeen: host.Wall(),
			port: device{caller: s.caller, path: filepath.Join(s.root, "dev", id.device), sata: id.kind == "sata"}}
		go w.run()
		workers, s.schema = append(workers, w), nil
	}
	for _, w := range s.workers {
		if w != nil {
			close(w.ask)
			s.schema = nil
		}
	}
	s.workers = workers
}

// Read asks every drive and waits for the answers. The drives that answer an
// error, or nothing in time, have only drive_read_failures in the frame. It
// allocates nothing while the drives say the same things, but for once in
// rescan, when it looks for others.
func (s *drives) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	if f.Begin >= s.next {
		s.look()
	}
	s.askAll()
	f.End = host.Mono()
	changed, good := s.schema == nil, 0
	var failed error
	for _, w := range s.workers {
		if w.last.err == nil {
			good++
		} else {
			failed = w.last.err
		}
		changed = w.take() || changed
	}
	if good == 0 {
		return fmt.Errorf("health of %d drives: none could be read: %w", len(s.workers), failed)
	}
	if changed {
		if err := s.rebuild(); err != nil {
			return err
		}
	}
	f.Schema, f.Lost = s.schema, 0
	f.Resize(s.schema.Words)
	to := f.Values[:0]
	for _, w := range s.workers {
		to = append(to, w.failures[:]...)
		for r, shown := range w.shown {
			if shown {
				to = append(to, w.last.values[r])
			}
		}
	}
	return nil
}

// askAll asks the drives all at once. An answer to a question of before is too
// old to be of this read.
func (s *drives) askAll() {
	for _, w := range s.workers {
		if w.asked {
			select {
			case <-w.answer:
				w.asked = false
			default:
				continue
			}
		}
		w.asked = true
		w.ask <- struct{}{}
	}
	s.timer.Reset(s.wait)
	late := false
	for _, w := range s.workers {
		if !late {
			select {
			case w.last = <-w.answer:
				w.asked = false
				continue
			case <-s.timer.C:
				late = true
			}
		}
		select {
		case w.last = <-w.answer:
			w.asked = false
		default:
			w.last = answer{err: errTimeout}
		}
	}
	for _, w := range s.workers {
		switch {
		case w.asked:
			w.failures[byTimeout]++
		case w.last.err != nil:
			w.failures[byError]++
		}
	}
}

// take takes over the last answer, and tells whether its series are others. A
// counter that fell (the drive's firmware was replaced) begins anew.
func (w *worker) take() (changed bool) {
	has := w.last.has
	if w.last.err != nil {
		has = [readings]bool{}
	}
	for r := range has {
		if !has[r] || series[r].desc.Kind != metric.Counter {
			continue
		}
		if value := w.last.values[r]; w.start[r] == 0 {
			w.start[r] = host.BootTime()
		} else if value < w.highest[r] {
			w.start[r], changed = host.Wall(), true
		}
		w.highest[r] = w.last.values[r]
	}
	changed = changed || has != w.shown
	w.shown = has
	return changed
}

// rebuild makes the schema of what the drives said.
func (s *drives) rebuild() (err error) {
	var all []metric.Series
	for _, w := range s.workers {
		for _, reason := range reasons {
			all = append(all, metric.Series{Desc: descFailures, Values: w.labels(descFailures, reason), Start: w.firstSeen})
		}
		for r, shown := range w.shown {
			if shown {
				d := series[r].desc
				all = append(all, metric.Series{Desc: d, Values: w.labels(d, series[r].extra), Start: w.start[r]})
			}
		}
	}
	s.schema, err = metric.NewSchema(s.Name(), all)
	return err
}

// Close lets the drives go. A drive that has not answered yet is not waited
// for: its goroutine ends when it does.
func (s *drives) Close() error {
	s.timer.Stop()
	for _, w := range s.workers {
		close(w.ask)
	}
	s.workers = nil
	return nil
}
