// SPDX-License-Identifier: Apache-2.0

package external

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"rezolus/internal/metric"
)

// bench is a source without a socket, whose clock a test moves.
type bench struct {
	*Source
	t      testing.TB
	now    int64
	who    *account
	parser parser
	frame  metric.Frame
}

func newBench(t testing.TB, o Options) *bench {
	t.Helper()
	b := &bench{Source: newSource(o.withDefaults()), t: t, now: 1e9}
	b.mono = func() int64 { return b.now }
	b.wall = func() int64 { return 5e18 + b.now }
	b.who = b.table.open(process{1000, 1}, b.now)
	return b
}

// says takes lines, each of which must be good.
func (b *bench) says(text string) {
	b.t.Helper()
	for one := range strings.SplitSeq(text, "\n") {
		if err := b.say(b.who, one); err != nil {
			b.t.Fatalf("%q: %v", one, err)
		}
	}
}

func (b *bench) say(a *account, text string) error {
	l, err := b.parser.parse([]byte(text))
	if err != nil || l.verb == nothing {
		return err
	}
	return b.table.apply(a, l, b.mono(), b.wall())
}

// refuses takes a line that must be refused.
func (b *bench) refuses(text string, why reason) {
	b.t.Helper()
	var r *refusal
	if err := b.say(b.who, text); !errors.As(err, &r) || r.reason != why {
		b.t.Errorf("%q: error %v, want one of %s", text, err, reasonNames[why])
	}
}

// read publishes the membership and reads it.
func (b *bench) read() *metric.Frame {
	b.t.Helper()
	if err := b.build(); err != nil {
		b.t.Fatal(err)
	}
	if err := b.Read(&b.frame); err != nil {
		b.t.Fatal(err)
	}
	return &b.frame
}

// find is a series by its name and the values of its labels.
func find(f *metric.Frame, id string) (*metric.Series, []uint64) {
	for i := 0; f.Schema != nil && i < len(f.Schema.Series); i++ {
		s := &f.Schema.Series[i]
		if strings.Join(append([]string{s.Desc.Name}, s.Values...), " ") == id {
			return s, f.Values[s.Off:][:s.Desc.Words()]
		}
	}
	return nil, nil
}

func (b *bench) want(id string, word uint64, start int64) {
	b.t.Helper()
	s, words := find(b.read(), id)
	if s == nil {
		b.t.Errorf("%s is not there", id)
	} else if words[0] != word || s.Start != start {
		b.t.Errorf("%s = %d from %d on; want %d from %d on", id, words[0], s.Start, word, start)
	}
}

func TestCounters(t *testing.T) {
	b := newBench(t, Options{})
	born := b.wall()
	b.says("a counter:17\nb counter:+5\nb counter:+6")
	b.want("a external", 17, 0)
	b.want("b external", 11, born)
	schema := b.frame.Schema
	b.now += 1e9
	b.says("a counter:19\nb counter:+1\nb counter:20")
	b.want("a external", 19, 0)
	b.want("b external", 20, born)
	if b.frame.Schema != schema {
		t.Error("another schema for the same series")
	}
	// A reset. Until it can be told, the old value stays.
	b.says("a counter:3")
	b.Read(&b.frame)
	if _, words := find(&b.frame, "a external"); words[0] != 19 || b.frame.Schema != schema {
		t.Errorf("the counter stepped back to %d without a new start", words[0])
	}
	b.want("a external", 3, b.wall())
	b.says("a counter:18446744073709551615")
	b.refuses("a counter:+1", badNumber)
}

func TestAResetWhileTheSchemaIsMade(t *testing.T) {
	b := newBench(t, Options{})
	b.says("a counter:17")
	b.read()
	b.says("b counter:1")
	members, users, _ := b.begin()
	b.says("a counter:2")
	if err := b.publish(members, users); err != nil {
		t.Fatal(err)
	}
	b.Read(&b.frame)
	if s, words := find(&b.frame, "a external"); words[0] != 17 || s.Start != 0 {
		t.Errorf("the schema of before the reset says %d from %d on", words[0], s.Start)
	}
	b.want("a external", 2, b.wall())
	b.says("a counter:4")
	b.want("a external", 4, b.wall())
}

func TestGauges(t *testing.T) {
	b := newBench(t, Options{})
	b.says("a gauge:0.25\nb gauge:-7\nc gauge:NaN")
	b.want("a external", math.Float64bits(0.25), 0)
	b.want("b external", math.Float64bits(-7), 0)
	if s, words := find(&b.frame, "c external"); !s.Desc.Float || !math.IsNaN(math.Float64frombits(words[0])) {
		t.Errorf("%+v %x", s, words)
	}
}

func TestHistograms(t *testing.T) {
	b := newBench(t, Options{})
	born := b.wall()
	for v := range 1009 {
		b.says(fmt.Sprint("a_nanoseconds observe:", v, " ", v))
	}
	s, words := find(b.read(), "a_nanoseconds external")
	if s.Desc.Unit != metric.Nanoseconds || s.Desc.Power != power || s.Start != born {
		t.Errorf("%+v", s)
	}
	for i, n := range words {
		lo, hi := power.Bounds(i)
		want := uint64(0)
		if lo < 1009 {
			want = 2 * (min(hi, 1008) - lo + 1)
		}
		if n != want {
			t.Errorf("bucket %d holds %d, want %d", i, n, want)
		}
	}
	b.says("h histogram:3,64:5 6 495=7")
	b.now += 1e9
	b.says("h histogram:3,64:5 8 495=7")
	b.want("h external", 5, 0)
	b.says("h histogram:3,64:5 7 495=9") // one bucket fell
	b.want("h external", 5, b.wall())
	if _, words := find(&b.frame, "h external"); words[1] != 7 || words[495] != 9 {
		t.Errorf("%v", words)
	}
}

func TestSeriesEnd(t *testing.T) {
	b := newBench(t, Options{TTL: time.Minute})
	b.says("a counter:1\nb gauge:1")
	b.read()
	with := b.frame.Schema
	b.now += int64(40 * time.Second)
	b.says("a counter:1") // an update, though nothing changed
	b.now += int64(30 * time.Second)
	b.read()
	if s, _ := find(&b.frame, "b external"); s != nil {
		t.Error("b outlived its TTL")
	}
	if s, _ := find(&b.frame, "a external"); s == nil || b.frame.Schema == with {
		t.Error("a was updated, and is gone")
	}
	b.now += int64(2 * time.Minute)
	b.read()
	if len(b.table.series) != 0 || len(b.table.families) != 0 || b.table.words != 0 || b.who.series != 0 {
		t.Errorf("nothing is pushed any more, and there is %+v", b.table)
	}
	b.says("b counter:7") // a name is free again, for another kind
	b.want("b external", 7, 0)
}

func TestLabelsOfOneMetricMayDiffer(t *testing.T) {
	b := newBench(t, Options{})
	b.says(`a{x="1"} counter:1`)
	b.want("a external 1", 1, 0) // source, x
	b.says(`a{y="2"} counter:2` + "\n" + `a counter:3` + "\n" + `a{y="2",x="1"} counter:4`)
	b.want("a external 1 ", 1, 0) // source, x, y
	b.want("a external  2", 2, 0)
	b.want("a external  ", 3, 0)
	b.want("a external 1 2", 4, 0)
	b.says(`a{x="1",y="2"} counter:5`)
	b.want("a external 1 2", 5, 0)
	for i := range maxLabels - 2 {
		b.says(fmt.Sprintf(`a{l%d="1"} counter:1`, i))
	}
	b.refuses(`a{one_more="1"} counter:1`, badLabels)
}

func TestNamesAndKinds(t *testing.T) {
	b := newBench(t, Options{Reserved: func(name string) bool { return name == "cpu_usage" }})
	b.refuses("cpu_usage counter:1", badName)
	b.refuses("external_lines counter:1", badName)
	b.says("a counter:1")
	b.refuses("a gauge:1", otherKind)
	b.refuses("a observe:1", otherKind)
	b.refuses(`a{x="1"} gauge:1`, otherKind)
	b.want("a external", 1, 0)
}

func TestBoundsOfSeries(t *testing.T) {
	b := newBench(t, Options{SeriesPerClient: 3, MaxSeries: 5, MaxWords: 600})
	b.says("a counter:1\nb counter:1\nc counter:1")
	b.refuses("d counter:1", clientSeries)
	b.says("a counter:2") // those that are there go on
	another := b.table.open(process{1000, 2}, b.now)
	for _, text := range []string{"a counter:3", "d counter:1", "e observe:1"} {
		if err := b.say(another, text); err != nil {
			t.Errorf("%q of another process: %v", text, err)
		}
	}
	b.who = b.table.open(process{1000, 3}, b.now)
	b.refuses("f counter:1", totalSeries)
	b.want("a external", 3, 0)
}

func TestBoundOfMemory(t *testing.T) {
	b := newBench(t, Options{MaxWords: 600})
	b.says("a observe:1")
	b.refuses("b observe:1", totalWords)
	b.says("b counter:1")
}

func TestAccountsAreForgotten(t *testing.T) {
	b := newBench(t, Options{})
	b.says("a counter:1")
	b.who.connections--
	b.table.release(b.who)
	if len(b.table.accounts) != 1 {
		t.Error("an account with series is forgotten")
	}
	b.now += int64(time.Hour)
	b.read()
	if len(b.table.accounts) != 0 {
		t.Error("an account without series is kept")
	}
}

func TestLinesAreToldByUser(t *testing.T) {
	b := newBench(t, Options{})
	b.says("a counter:1\na counter:2")
	for uid := range uint32(40) {
		if err := b.say(b.table.open(process{uid, 1}, b.now), "a counter:3"); err != nil {
			t.Fatal(err)
		}
	}
	f := b.read()
	sum, n := uint64(0), 0
	for _, s := range f.Schema.Series {
		if s.Desc == lines {
			sum += f.Values[s.Off]
			n++
		}
	}
	if _, words := find(f, "external_lines 1000"); words[0] != 2 || sum != 42 || n != maxUsers+1 {
		t.Errorf("%d lines of %d users, %d of user 1000; want 42 of %d, and 2", sum, n, words[0], maxUsers+1)
	}
	if _, words := find(f, "external_lines other"); words[0] != 42-2-(maxUsers-1) {
		t.Errorf("%d lines of others", words[0])
	}
}

func TestRate(t *testing.T) {
	b := newBench(t, Options{LinesPerSecond: 10})
	n := 0
	for range 100 {
		if b.table.allow(b.who, b.now) {
			n++
		}
	}
	b.now += 5e8
	for range 100 {
		if b.table.allow(b.who, b.now) {
			n++
		}
	}
	if n != 15 {
		t.Errorf("%d lines in half a second, want 10 at once and 5", n)
	}
	b.now += 1e10
	// Of two connections, the one that asked first may come second.
	if !b.table.allow(b.who, b.now) || !b.table.allow(b.who, b.now-1e9) {
		t.Error("two of ten lines are too many")
	}
}

func TestReadAllocatesNothing(t *testing.T) {
	b := newBench(t, Options{})
	b.says("a counter:1\nb observe:5\nc gauge:1")
	b.read()
	text := []byte("a counter:+1")
	if n := testing.AllocsPerRun(100, func() {
		l, err := b.parser.parse(text)
		if err == nil {
			err = b.table.apply(b.who, l, 1e9, 2e9) // nor does an update
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Read(&b.frame); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	b.want("a external", 102, 0)
}

func BenchmarkRead(b *testing.B) {
	s := newBench(b, Options{})
	for i := range 1000 {
		s.says(fmt.Sprintf(`requests{code="%d"} counter:1`, i))
	}
	s.read()
	for b.Loop() {
		if err := s.Read(&s.frame); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLine(b *testing.B) {
	s := newBench(b, Options{})
	text := []byte(`requests{code="200",path="/index.html"} counter:+1`)
	for b.Loop() {
		l, err := s.parser.parse(text)
		if err == nil {
			err = s.table.apply(s.who, l, 1, 2)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBuild is what a new series costs where there are 10,000.
func BenchmarkBuild(b *testing.B) {
	s := newBench(b, Options{SeriesPerClient: 10_000})
	for i := range 10_000 {
		s.says(fmt.Sprintf(`requests{code="%d",path="/x"} counter:1`, i))
	}
	for b.Loop() {
		s.table.changed = true
		if err := s.build(); err != nil {
			b.Fatal(err)
		}
	}
}
