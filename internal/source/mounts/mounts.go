// SPDX-License-Identifier: Apache-2.0

// Package mounts tells how full file systems are: space and inodes of each that
// is mounted, by statfs(2).
//
// statfs waits for the server of a network file system, for as long as the
// server is away. So each mount is asked by a goroutine of its own. One that
// does not answer in time has no values until it does, and is in the way of
// nothing else.
package mounts

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

const sampler = "filesystem"

// maxMounts bounds the file systems that are asked, and so the goroutines and
// threads that may hang.
const maxMounts = 256

// patience is how long a read waits for answers. One that comes later is taken
// by the next read.
const patience = time.Second

func gauge(name string, unit metric.Unit, help string, keys ...string) *metric.Desc {
	return &metric.Desc{Name: "filesystem_" + name, Help: help, Unit: unit, Kind: metric.Gauge, Keys: keys, Sampler: sampler}
}

func perMount(name string, unit metric.Unit, help string) *metric.Desc {
	return gauge(name, unit, help, "device", "mount", "type")
}

// usage is what statfs says of a mount, in the order of mountDescs.
type usage [6]uint64

var (
	mountDescs = [len(usage{})]*metric.Desc{
		perMount("size", metric.Bytes, "space of the file system"),
		perMount("free", metric.Bytes, "space that nothing is in, with what is kept for root"),
		perMount("available", metric.Bytes, "space that programs without privileges can have"),
		perMount("inodes", metric.None, "files that the file system has room for; 0 if it makes room as needed"),
		perMount("inodes_free", metric.None, "files that the file system has room for and that do not exist"),
		perMount("read_only", metric.None, "1 if the mount or its file system is read only, 0 if not"),
	}
	mountsHung   = gauge("mounts_hung", metric.None, "mounts that do not answer and have no values")
	mountsFailed = gauge("mounts_failed", metric.None, "mounts that answer with an error and have no values")
	mountsHidden = gauge("mounts_hidden", metric.None, "mounts beyond the bound, which are not asked")
)

// Source asks the mounts of the mount namespace of the agent.
type Source struct {
	table   *os.File // mountinfo
	ask     asker
	wait    time.Duration
	limit   int
	text    []byte // mountinfo as it was read last
	buf     []byte
	workers []*worker
	gone    []*worker // of mounts that are no more and whose call still hangs
	hidden  int
	timer   *time.Timer
	shown   []*worker // of the schema
	answers []*worker // of this read; scratch
	schema  *metric.Schema
}

// New opens /proc/self/mountinfo.
func New() (*Source, error) { return open("/proc/self/mountinfo", measure, patience, maxMounts) }

func open(path string, ask asker, wait time.Duration, limit int) (*Source, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	s := &Source{table: f, ask: ask, wait: wait, limit: limit, timer: time.NewTimer(wait)}
	s.timer.Stop()
	return s, nil
}

// Name is "filesystem".
func (s *Source) Name() string { return sampler }

// Read fills f with what every mount says that answers in time. It allocates
// nothing while the mounts are the same.
func (s *Source) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	if err := s.list(); err != nil {
		return err
	}
	hung, failed := s.collect()
	f.End = host.Mono()
	if s.schema == nil || !slices.Equal(s.shown, s.answers) {
		if err := s.rebuild(); err != nil {
			return err
		}
	}
	f.Schema, f.Lost = s.schema, 0
	f.Resize(s.schema.Words)
	to := append(f.Values[:0], uint64(hung), uint64(failed), uint64(s.hidden))
	for _, w := range s.answers {
		to = append(to, w.last[:]...)
	}
	return nil
}

// list reads which mounts there are, if they are others than before. A worker
// whose mount is gone ends when its call returns.
func (s *Source) list() error {
	text, err := s.read()
	if err != nil {
		return fmt.Errorf("read mounts: %w", err)
	}
	if s.text != nil && bytes.Equal(text, s.text) {
		return nil
	}
	mounts, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("read mounts: %w", err)
	}
	s.text = slices.Clone(text)
	s.gone = slices.DeleteFunc(s.gone, func(w *worker) bool { w.look(); return !w.waiting })
	s.hidden = min(len(mounts), max(0, len(mounts)+len(s.gone)-s.limit))
	var workers []*worker
	for _, m := range mounts[:len(mounts)-s.hidden] {
		i := slices.IndexFunc(s.workers, func(w *worker) bool { return w.mount == m })
		if i >= 0 {
			workers = append(workers, s.workers[i])
			s.workers = slices.Delete(s.workers, i, i+1)
			continue
		}
		workers = append(workers, newWorker(m, s.ask))
	}
	for _, w := range s.workers {
		close(w.questions)
		if w.look(); w.waiting {
			s.gone = append(s.gone, w)
		}
	}
	s.workers = workers
	return nil
}

// read is the whole of mountinfo, which the kernel gives a page at a time.
func (s *Source) read() ([]byte, error) {
	if s.buf == nil {
		s.buf = make([]byte, 16<<10)
	}
	for at := 0; ; {
		if at == len(s.buf) {
			s.buf = append(s.buf, make([]byte, len(s.buf))...)
		}
		n, err := readAt(s.table, s.buf[at:], at)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return s.buf[:at], nil
		}
		at += n
	}
}

// collect asks all mounts that are not busy with an earlier question, and waits
// for them; whoever hung before is not waited for.
func (s *Source) collect() (hung, failed int) {
	for _, w := range s.workers {
		w.begin()
	}
	s.timer.Reset(s.wait)
	defer s.timer.Stop()
	s.answers = s.answers[:0]
	late := false
	for _, w := range s.workers {
		for w.waiting && !w.hangs && !late {
			select {
			case a := <-w.answers:
				w.take(a)
			case <-s.timer.C:
				late = true
			}
		}
		w.look()
		switch {
		case w.waiting:
			w.hangs = true
			hung++
		case w.err != nil && !errors.Is(w.err, errNotShown):
			failed++
		case w.err == nil:
			s.answers = append(s.answers, w)
		}
	}
	return hung, failed
}

func (s *Source) rebuild() (err error) {
	series := []metric.Series{{Desc: mountsHung}, {Desc: mountsFailed}, {Desc: mountsHidden}}
	for _, w := range s.answers {
		for _, d := range mountDescs {
			series = append(series, metric.Series{Desc: d, Values: []string{w.mount.device, w.mount.point, w.mount.kind}})
		}
	}
	s.shown = slices.Clone(s.answers)
	s.schema, err = metric.NewSchema(sampler, series)
	return err
}

// Close closes the file. A goroutine whose mount hangs ends when the mount
// answers, or with the process.
func (s *Source) Close() error {
	for _, w := range s.workers {
		close(w.questions)
	}
	s.workers = nil
	return s.table.Close()
}

// Samplers is the sampler of this package.
func Samplers() []source.Sampler {
	return []source.Sampler{{Name: sampler, Reads: "/proc/self/mountinfo, statfs(2)", Every: 10 * time.Second, Blocking: true,
		Descs: append(mountDescs[:len(mountDescs):len(mountDescs)], mountsHung, mountsFailed, mountsHidden),
		Open:  func() (source.Source, error) { return New() }}}
}
