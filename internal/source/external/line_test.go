// SPDX-License-Identifier: Apache-2.0

package external

import (
	"errors"
	"math"
	"strings"
	"testing"

	"rezolus/internal/hist"
)

// said is a line in one string: name, labels, verb.
func said(l *line) string {
	var b strings.Builder
	b.Write(l.name)
	for _, p := range l.labels {
		b.WriteString(" " + string(p.key) + "=" + string(p.value))
	}
	return b.String()
}

func TestParse(t *testing.T) {
	var p parser
	f := func(text, want string, v verb) {
		t.Helper()
		l, err := p.parse([]byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			return
		}
		if got := said(l); got != want || l.verb != v {
			t.Errorf("%q is %q, verb %d; want %q, verb %d", text, got, l.verb, want, v)
		}
	}
	f("", "", nothing)
	f("  \t\r", "", nothing)
	f("# anything", "", nothing)
	f("#SESSIONS are no session", "", nothing)
	f("a counter:1", "a", counterSet)
	f("a\tcounter:+1\r", "a", counterAdd)
	f("  a_b9 gauge:-1.5e3", "a_b9", gaugeSet)
	f(`a{} gauge:1`, "a", gaugeSet)
	f(`a{z="1",b="2"} gauge:1`, "a b=2 z=1", gaugeSet)
	f(`a { b = "2" , } gauge:1`, "a b=2", gaugeSet)
	f(`a{b="x y}z,=#"}gauge:1`, "a b=x y}z,=#", gaugeSet)
	f(`a{b="q\"\\\n",c="ü"} gauge:1`, "a b=q\"\\\n c=ü", gaugeSet)
	f(`a{b="\\",c="\""} gauge:1`, `a b=\ c="`, gaugeSet)
	f(`a{b=""} gauge:1`, "a", gaugeSet)
	f(`a observe:1 2  3`, "a", histObserve)
	f(`a histogram:3,64:1 2 3`, "a", histSet)
	f(`# SESSION job="x",host="y\n"`, "", nothing)
	f(`a counter:1`, "a host=y\n job=x", counterSet)
	f(`a{job="mine"} counter:1`, "a host=y\n job=mine", counterSet)
	f(`a{job=""} counter:1`, "a host=y\n", counterSet)
	f(`# SESSION`, "", nothing)
	f(`a counter:1`, "a", counterSet)
}

func TestParseNumbers(t *testing.T) {
	var p parser
	parse := func(text string) *line {
		t.Helper()
		l, err := p.parse([]byte(text))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return l
	}
	if n := parse("a counter:18446744073709551615").count; n != math.MaxUint64 {
		t.Errorf("the largest counter is %d", n)
	}
	if v := parse("a gauge:0.1").value; v != 0.1 {
		t.Errorf("gauge %v", v)
	}
	if v := parse("a gauge:-Inf").value; !math.IsInf(v, -1) {
		t.Errorf("gauge %v", v)
	}
	if v := parse("a gauge:NaN").value; !math.IsNaN(v) {
		t.Errorf("gauge %v", v)
	}
	if w := parse("a observe:7 0 7").words; len(w) != 3 || w[0] != 7 || w[1] != 0 {
		t.Errorf("observed %v", w)
	}
	if w := parse("a histogram:3,8:1 0 5 47=7").words; len(w) != 496 || w[0] != 1 || w[2] != 5 || w[47] != 7 {
		t.Errorf("a histogram below 2^8 is %v", w)
	}
}

func TestParseHistogram(t *testing.T) {
	var p parser
	l, err := p.parse([]byte("a histogram:3,64:1 0 5 100=7 1 495=2"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[int]uint64{0: 1, 2: 5, 100: 7, 101: 1, 495: 2}
	for i, n := range l.words {
		if n != want[i] {
			t.Errorf("bucket %d is %d, want %d", i, n, want[i])
		}
	}
	// Finer: every value lands in the coarser bucket that holds it.
	fine := hist.Power(7)
	for _, v := range []uint64{0, 1, 15, 16, 255, 256, 1000, 1 << 40} {
		text := "a histogram:7,64:" + decimal(fine.Index(v)) + "=3"
		if l, err = p.parse([]byte(text)); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if hist.Count(l.words) != 3 || l.words[power.Index(v)] != 3 {
			t.Errorf("three times %d are not in bucket %d", v, power.Index(v))
		}
	}
}

func decimal(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return decimal(n/10) + string(rune('0'+n%10))
}

func TestParseRefuses(t *testing.T) {
	var p parser
	f := func(text string, why reason) {
		t.Helper()
		_, err := p.parse([]byte(text))
		var r *refusal
		if !errors.As(err, &r) || r.reason != why {
			t.Errorf("%.60q: error %v, want one of %s", text, err, reasonNames[why])
		} else if len(r.text) > 200 || strings.ContainsAny(r.text, "\n\r") {
			t.Errorf("%.60q: the error is no short line: %q", text, r.text)
		}
	}
	f("REZL\x01\x00", syntax) // the binary form of another agent
	f("a", syntax)
	f("a 1", syntax)
	f("a counter", syntax)
	f("a timer:1", syntax)
	f("A counter:1", badName)
	f("9a counter:1", badName)
	f("a-b counter:1", badName)
	f(strings.Repeat("a", 129)+" counter:1", badName)
	f("\xff counter:1", badName)
	f("{} counter:1", badName)
	f(`a{b="1" counter:1`, syntax)
	f(`a{b="1`, syntax)
	f(`a{b="1\`, syntax)
	f(`a{b="1\"`, syntax)
	f(`a{b="\x"} counter:1`, syntax)
	f(`a{b=1} counter:1`, syntax)
	f(`a{b} counter:1`, syntax)
	f(`a{b="1" c="2"} counter:1`, syntax)
	f(`a{b-c="1"} counter:1`, badLabels)
	f(`a{="1"} counter:1`, badLabels)
	f(`a{__name__="1"} counter:1`, badLabels)
	f(`a{le="1"} counter:1`, badLabels)
	f(`a{source="1"} counter:1`, badLabels)
	f(`a{b="1",b="2"} counter:1`, badLabels)
	f(`a{b="`+strings.Repeat("x", 257)+`"} counter:1`, badLabels)
	f("a{b=\"\xff\"} counter:1", badLabels)
	f(`a{`+strings.Repeat(`b="1",`, 17)+`} counter:1`, badLabels)
	f("# SESSION a", syntax)
	f(`# SESSION a="1"}`, syntax)
	f(`# SESSION a="1",a="2"`, badLabels)
	for _, n := range []string{"", "-1", "1.5", "+", "+-1", "18446744073709551616", "99999999999999999999", "0x1", "1 2"} {
		f("a counter:"+n, badNumber)
	}
	for _, n := range []string{"", "x", "0x1p3", "1_0", "1 2", "1e999"} {
		f("a gauge:"+n, badNumber)
	}
	for _, n := range []string{"", " ", "1.5", "1 x"} {
		f("a observe:"+n, badNumber)
	}
	f("a histogram:3:1", syntax)
	f("a histogram:3,64", syntax)
	f("a histogram:2,64:1", badNumber)
	f("a histogram:8,64:1", badNumber)
	f("a histogram:3,65:1", badNumber)
	f("a histogram:3,3:1", badNumber)
	f("a histogram:3,64:x", badNumber)
	f("a histogram:3,64:5=1 5=1", badNumber)
	f("a histogram:3,64:496=1", badNumber)
	f("a histogram:3,8:48=1", badNumber)
	f("a histogram:3,4:1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", badNumber)
	f("a histogram:3,64:18446744073709551615 1", badNumber)
}

func TestParseAllocatesNothing(t *testing.T) {
	var p parser
	texts := [][]byte{[]byte(`a{b="1",c="x\ny"} counter:+1`), []byte(`a observe:1 2 3`), []byte(`a histogram:5,64:1 2 100=3`)}
	parse := func() {
		for _, b := range texts {
			if _, err := p.parse(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	parse()
	if n := testing.AllocsPerRun(100, parse); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`a{b="1",c="x\ny"} counter:+1`, "# SESSION a=\"1\"", "a histogram:5,64:1 2 100=3", "a observe:1 2", "a gauge:1e3"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newSource(Options{}.withDefaults())
		a := s.table.open(process{}, 0)
		var p parser
		for range 2 { // the second time with a session, if it is one
			l, err := p.parse(b)
			if err == nil && l.verb != nothing {
				err = s.table.apply(a, l, 1, 2)
				if len(s.table.series) != 1 && err == nil {
					t.Fatal("taken, and not there")
				}
			}
			var r *refusal
			if err != nil && !errors.As(err, &r) {
				t.Fatalf("%v is no refusal", err)
			}
		}
		if err := s.build(); err != nil {
			t.Fatal(err) // whatever was taken can be published
		}
	})
}
