// SPDX-License-Identifier: Apache-2.0

package external

import (
	"slices"
	"strconv"

	"rezolus/internal/metric"
)

// samplerName is the switch, the source, and the value of the label source of
// all that is pushed.
const (
	samplerName = "external"
	sourceKey   = "source"
)

// reason is why something was not taken.
type reason int

const (
	syntax       reason = iota // the line is not as docs/external.md has it
	badName                    // the name is none, or a built-in metric's
	badLabels                  // too many, too long, or not allowed
	badNumber                  // the value is none, or out of range
	otherKind                  // the metric is of another kind already
	tooLong                    // longer than MaxLine
	unfinished                 // the connection ended within the line
	tooFast                    // more than LinesPerSecond
	clientSeries               // SeriesPerClient
	totalSeries                // MaxSeries
	totalWords                 // MaxWords
	clients                    // MaxClients: a connection, not a line
	reasons
)

var reasonNames = [reasons]string{"syntax", "name", "labels", "number", "kind", "line_length", "unfinished", "line_rate",
	"client_series", "series", "memory", "clients"}

var (
	dropped = &metric.Desc{Name: "external_dropped", Help: "lines of other programs that were not taken, and connections (reason clients)",
		Kind: metric.Counter, Keys: []string{"reason"}, Sampler: samplerName}
	lines = &metric.Desc{Name: "external_lines", Help: "samples that were taken from other programs, by the user they run as",
		Kind: metric.Counter, Keys: []string{"uid"}, Sampler: samplerName}
	connections = &metric.Desc{Name: "external_clients", Help: "connections of other programs", Kind: metric.Gauge, Sampler: samplerName}
	held        = &metric.Desc{Name: "external_series", Help: "series that other programs pushed within their time to live",
		Kind: metric.Gauge, Sampler: samplerName}
	descs = []*metric.Desc{connections, held, dropped, lines}
)

// maxUsers is how many users have lines of their own; the rest are other.
const (
	maxUsers = 16
	other    = "other"
)

// userLines counts the lines of a user.
type userLines struct {
	uid   string
	lines uint64
}

// userOf is the count of a user, that of all the rest if there are too many.
// It is called with the lock held.
func (t *table) userOf(uid uint32) *userLines {
	name := strconv.FormatUint(uint64(uid), 10)
	for _, u := range t.users {
		if u.uid == name || u.uid == other {
			return u
		}
	}
	if len(t.users) == maxUsers {
		name = other
	}
	u := &userLines{uid: name}
	t.users, t.changed = append(t.users, u), true
	return u
}

// selfSeries are the source's own series, which come first in a frame.
func selfSeries(users []*userLines, start int64) []metric.Series {
	all := []metric.Series{{Desc: connections}, {Desc: held}}
	for _, name := range reasonNames {
		all = append(all, metric.Series{Desc: dropped, Values: []string{name}, Start: start})
	}
	for _, u := range users {
		all = append(all, metric.Series{Desc: lines, Values: []string{u.uid}, Start: start})
	}
	return all
}

// self writes the words of selfSeries and returns how much was dropped.
func (t *table) self(to []uint64, users, conns int) (sum uint64) {
	to[0], to[1] = uint64(conns), uint64(len(t.series))
	n := 2 + copy(to[2:], t.dropped[:])
	for i, u := range t.users[:users] {
		to[n+i] = u.lines
	}
	for _, d := range t.dropped {
		sum += d
	}
	return sum
}

// ours tells whether a name is of this package's own metrics.
func ours(name string) bool {
	return slices.ContainsFunc(descs, func(d *metric.Desc) bool { return d.Name == name })
}
