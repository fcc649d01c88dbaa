// SPDX-License-Identifier: Apache-2.0

package tasks

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// follow takes over what a task is at now.
func (s *Tasks) follow(t *task, now stat) {
	if t.comm == nil || !bytes.Equal(t.comm, now.comm) {
		s.retire(t) // its series has the name in it
		t.comm = slices.Clone(now.comm)
	}
	t.seen = s.read
	t.used = now.ticks - min(now.ticks, t.ticks)
	t.ticks = max(t.ticks, now.ticks)
	if !t.shown && t.used > 0 {
		s.busy = append(s.busy, t)
	}
}

// choose decides what is shown. One that is shown makes way only for one that
// used twice as much as it lately did, so that series do not come and go with
// every small change.
func (s *Tasks) choose() {
	for _, t := range s.shown {
		t.lately /= 2
		if t.seen == s.read {
			t.lately += t.used
		}
	}
	slices.SortFunc(s.busy, func(a, b *task) int {
		return cmp.Or(cmp.Compare(b.used, a.used), cmp.Compare(a.pid, b.pid))
	})
	for _, t := range s.busy {
		if len(s.shown) >= s.limit {
			least := slices.MinFunc(s.shown, func(a, b *task) int { return cmp.Compare(a.lately, b.lately) })
			if t.used <= 2*least.lately {
				break
			}
			s.retire(least)
		}
		s.admit(t)
	}
}

// admit shows a task, with what it used since the read before. Until then it
// was in the sum of the others.
func (s *Tasks) admit(t *task) {
	t.shown, t.lately, t.told = true, t.used, 0
	t.base, t.start = t.ticks-t.used, s.last
	if t.base == 0 {
		t.start = host.BootTime() + int64(t.birth)*tick
	}
	t.labels = []string{s.cgroup(int(s.proc.Fd()), t.pid), strings.ToValidUTF8(string(t.comm), "?"), strconv.Itoa(int(t.pid)), strconv.Itoa(int(t.tgid))}
	s.shown, s.schema = append(s.shown, t), nil
}

// retire ends the series of a task, if it has one.
func (s *Tasks) retire(t *task) {
	if !t.shown {
		return
	}
	t.shown = false
	s.ended += t.told
	i := slices.Index(s.shown, t)
	s.shown, s.schema = slices.Delete(s.shown, i, i+1), nil
}

// rebuild makes the schema of the tasks that are shown.
func (s *Tasks) rebuild() error {
	series := make([]metric.Series, 0, len(s.shown)+2)
	for _, t := range s.shown {
		series = append(series, metric.Series{Desc: usage, Values: t.labels, Start: t.start})
	}
	series = append(series,
		metric.Series{Desc: usage, Values: []string{"other", "other", "other", "other"}, Start: host.BootTime()},
		metric.Series{Desc: ended, Start: host.BootTime()})
	schema, err := metric.NewSchema(s.Name(), series)
	s.schema = schema
	return err
}
