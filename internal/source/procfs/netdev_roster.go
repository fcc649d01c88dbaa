// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"math"
	"slices"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// column is a number that each line of a file has.
type column struct {
	desc *metric.Desc
	// value is of the one label of desc besides those that tell devices
	// apart, if there is one.
	value string
	scale uint64 // what one in the file is in the metric's unit; 0: 1
	// wraps: the file has the counter modulo 2^32.
	wraps bool
	// alone: the number of several devices together means nothing.
	alone bool
}

// other is the name of all devices that are not shown.
const other = "other"

// unknown is a gauge that a device does not have now: it gets no series.
const unknown = math.MaxUint64

// roster is what a file with a line a device says: the devices come and go,
// and those beyond a bound are summed, for each kind of device, into one that
// is called "other". The sums of a kind are those of the file either way.
type roster struct {
	source  string
	columns []column
	key     string // the label of the device's name
	limit   int    // of devices that are shown
	// look says what a device is that was not there before: its name as the
	// label has it, its kind, and a mark that no other device under the
	// same name will ever have, or "".
	look func(d *device)

	devices map[string]*device
	order   []*device // of this read
	before  []*device // of the read before
	shown   int
	others  []*device // one a kind, in the order in which kinds overflowed
	changed bool
	round   uint64
	last    int64 // Wall of the read before; 0: none
	schema  *metric.Schema
}

// device is a line of the file.
type device struct {
	id                string // what tells lines apart
	label, kind, mark string // see roster.look
	quiet             bool   // it is left out as long as it never did anything
	shown             bool
	other             *device // where it is summed if it is not shown
	start             int64
	round             uint64   // when it was seen last
	now               []uint64 // as the file has it
	had               []uint64 // as the file had it the time before
	total             []uint64 // as it is published
	base              []uint64 // of others: the counters of devices that are gone
}

// begin starts a read of the file.
func (r *roster) begin() {
	r.round++
	r.order, r.before = r.before[:0], r.order
	r.changed = r.schema == nil
}

// see is the device of a line, whose numbers go into its now.
func (r *roster) see(id []byte) *device {
	d := r.devices[string(id)]
	if d == nil {
		if r.devices == nil {
			r.devices = map[string]*device{}
		}
		d = r.newDevice(string(id))
		r.devices[d.id] = d
	}
	if d.round != r.round {
		d.round = r.round
		clear(d.now)
		r.order = append(r.order, d)
	}
	return d
}

func (r *roster) newDevice(id string) *device {
	words := make([]uint64, 4*len(r.columns))
	take := func() (part []uint64) {
		part, words = words[:len(r.columns):len(r.columns)], words[len(r.columns):]
		return part
	}
	return &device{id: id, now: take(), had: take(), total: take(), base: take()}
}

// end takes over what was read and fills f, without allocating while the same
// devices are there.
func (r *roster) end(f *metric.Frame) error {
	now := host.Wall()
	for _, d := range r.order {
		r.follow(d, now)
	}
	if len(r.devices) != len(r.order) {
		for id, d := range r.devices {
			if d.round != r.round {
				delete(r.devices, id)
				r.leave(d)
			}
		}
	}
	r.last = now
	if r.changed || !slices.Equal(r.order, r.before) {
		if err := r.rebuild(); err != nil {
			r.schema = nil
			return err
		}
	}
	f.Schema, f.Lost = r.schema, 0
	f.Resize(r.schema.Words)
	r.words(f.Values[:0])
	return nil
}

// follow takes over the numbers of a device that is there.
func (r *roster) follow(d *device, now int64) {
	switch {
	case d.start == 0:
		r.look(d)
		d.start = now
		if r.counted(d) {
			// It is older than this read, and what it counts may be
			// as old as the machine.
			d.start = host.BootTime()
		}
		copy(d.total, d.now)
		if !d.quiet || r.counted(d) {
			r.enter(d)
		}
	case d.quiet && !d.shown && d.other == nil:
		copy(d.total, d.now)
		if r.counted(d) {
			r.enter(d)
		}
	case r.fell(d):
		r.restart(d, now)
	default:
		r.advance(d)
	}
	copy(d.had, d.now)
}

// counted tells whether any counter of d is not zero.
func (r *roster) counted(d *device) bool {
	for i, c := range r.columns {
		if c.desc.Kind == metric.Counter && d.now[i] != 0 {
			return true
		}
	}
	return false
}

// fell tells whether a counter of d did, which is that of another device under
// the same name, or of one that was reset.
func (r *roster) fell(d *device) bool {
	for i, c := range r.columns {
		if c.desc.Kind == metric.Counter && !c.wraps && d.now[i] < d.had[i] {
			return true
		}
	}
	return false
}

// advance adds what the counters grew by. One that wraps and seems to have
// grown by more than half its range stepped back a little, because the kernel
// sums its CPUs without stopping them: it stands still.
func (r *roster) advance(d *device) {
	for i, c := range r.columns {
		switch {
		case c.desc.Kind != metric.Counter:
			r.changed = r.changed || (d.now[i] == unknown) != (d.total[i] == unknown)
			d.total[i] = d.now[i]
		case c.wraps:
			if grown := uint32(d.now[i]) - uint32(d.had[i]); grown < 1<<31 {
				d.total[i] += uint64(grown)
			} else {
				d.now[i] = d.had[i]
			}
		default:
			d.total[i] += d.now[i] - d.had[i]
		}
	}
}

// restart begins the counters anew: at what another device has counted since
// the last read, or at zero for the same one.
func (r *roster) restart(d *device, now int64) {
	placed, mark := d.shown || d.other != nil, d.mark
	r.leave(d)
	r.look(d)
	copy(d.total, d.now)
	if d.start = r.last; mark == "" || mark == d.mark {
		d.start = now
		for i, c := range r.columns {
			if c.desc.Kind == metric.Counter {
				d.total[i] = 0
			}
		}
	}
	if placed {
		r.enter(d)
	}
}

// enter finds d a place.
func (r *roster) enter(d *device) {
	r.changed = true
	if r.shown < r.limit && d.label != other {
		r.shown++
		d.shown = true
		return
	}
	i := slices.IndexFunc(r.others, func(o *device) bool { return o.kind == d.kind })
	if i < 0 {
		i = len(r.others)
		o := r.newDevice("")
		o.label, o.kind, o.start = other, d.kind, host.BootTime()
		r.others = append(r.others, o)
	}
	d.other = r.others[i]
}

// leave gives the place of d up. What it counted stays in the sum.
func (r *roster) leave(d *device) {
	if d.shown {
		r.shown--
		r.changed = true
	}
	if d.other != nil {
		for i, c := range r.columns {
			if c.desc.Kind == metric.Counter {
				d.other.base[i] += d.total[i]
			}
		}
	}
	d.shown, d.other = false, nil
}

// words appends the values in the order of the series.
func (r *roster) words(to []uint64) {
	for _, o := range r.others {
		copy(o.total, o.base)
	}
	for _, d := range r.order {
		switch {
		case d.shown:
			to = r.scaled(to, d)
		case d.other != nil:
			for i := range r.columns {
				if d.total[i] != unknown {
					d.other.total[i] += d.total[i]
				}
			}
		}
	}
	for _, o := range r.others {
		to = r.scaled(to, o)
	}
}

func (r *roster) scaled(to []uint64, d *device) []uint64 {
	for i := range r.columns {
		if r.has(d, i) {
			to = append(to, d.total[i]*max(r.columns[i].scale, 1))
		}
	}
	return to
}

// has tells whether d has a series of column i.
func (r *roster) has(d *device, i int) bool {
	return d.total[i] != unknown && !(r.columns[i].alone && !d.shown)
}

func (r *roster) rebuild() (err error) {
	var series []metric.Series
	for _, d := range r.order {
		if d.shown {
			series = r.series(series, d)
		}
	}
	for _, o := range r.others {
		series = r.series(series, o)
	}
	r.schema, err = metric.NewSchema(r.source, series)
	return err
}

func (r *roster) series(to []metric.Series, d *device) []metric.Series {
	for i, c := range r.columns {
		if !r.has(d, i) {
			continue
		}
		s := metric.Series{Desc: c.desc}
		for _, key := range c.desc.Keys {
			switch key {
			case r.key:
				s.Values = append(s.Values, d.label)
			case "kind":
				s.Values = append(s.Values, d.kind)
			default:
				s.Values = append(s.Values, c.value)
			}
		}
		if c.desc.Kind == metric.Counter {
			s.Start = d.start
		}
		to = append(to, s)
	}
	return to
}

// columnDescs are the metrics of columns, each once.
func columnDescs(columns []column) (descs []*metric.Desc) {
	for _, c := range columns {
		if !slices.Contains(descs, c.desc) {
			descs = append(descs, c.desc)
		}
	}
	return descs
}
