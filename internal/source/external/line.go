// SPDX-License-Identifier: Apache-2.0

package external

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"rezolus/internal/hist"
)

// Bounds of what a line may say. They are part of the protocol
// (docs/external.md).
const (
	maxName   = 128 // bytes of a metric's name and of a label's
	maxValue  = 256 // bytes of a label's value
	maxLabels = 16  // of a series, and different ones of a metric
)

// verb is what a line does to its series.
type verb uint8

const (
	nothing     verb = iota // an empty line or a comment
	counterSet              // counter:N
	counterAdd              // counter:+N
	gaugeSet                // gauge:X
	histSet                 // histogram:G,M:...
	histObserve             // observe:N ...
)

// label is a name and a value. Its bytes are the line's, or the parser's
// where the value has escapes.
type label struct{ key, value []byte }

// line is a line taken apart.
type line struct {
	name   []byte
	labels []label // sorted, none of them empty
	verb   verb
	count  uint64   // of a counter
	value  float64  // of a gauge
	words  []uint64 // buckets of a histogram, or values that were observed
}

// refusal is why a line is not taken, for the client and for the count.
type refusal struct {
	reason reason
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(why reason, format string, args ...any) error {
	return &refusal{why, fmt.Sprintf(format, args...)}
}

// parser takes lines apart, in memory of its own. One line is valid until the
// next.
type parser struct {
	line    line
	session []label // copied
	plain   []byte  // values without their escapes
	buckets []uint64
	coarse  [496]uint64
}

// power is the grouping power of all histograms: 496 buckets of 12.5 %.
const power = hist.Default

// parse reads one line without its newline.
func (p *parser) parse(b []byte) (*line, error) {
	p.line = line{labels: p.line.labels[:0], words: p.line.words[:0]}
	p.plain = p.plain[:0]
	b = bytes.Trim(b, " \t\r")
	if len(b) == 0 {
		return &p.line, nil
	}
	if b[0] == '#' {
		return &p.line, p.comment(b[1:])
	}
	n := bytes.IndexAny(b, "{ \t")
	if n < 0 {
		return nil, refuse(syntax, "no value; want NAME{LABELS} TYPE:VALUE")
	}
	if p.line.name = b[:n]; !validName(p.line.name) {
		return nil, refuse(badName, "name %.40q; want at most %d lower-case letters, digits and _, a letter first", b[:n], maxName)
	}
	if b = bytes.TrimLeft(b[n:], " \t"); b[0] == '{' {
		var err error
		if b, err = p.labels(b[1:]); err != nil {
			return nil, err
		}
	}
	if err := p.join(); err != nil {
		return nil, err
	}
	return &p.line, p.sample(bytes.TrimLeft(b, " \t"))
}

func validName(b []byte) bool {
	if len(b) == 0 || len(b) > maxName || b[0] < 'a' || b[0] > 'z' {
		return false
	}
	for _, c := range b {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}

// validKey tells whether b may name a label. Names that begin with __ are
// Prometheus's own, le is of the buckets of a histogram, and source is set by
// the agent.
func validKey(b []byte) bool {
	if len(b) == 0 || len(b) > maxName || '0' <= b[0] && b[0] <= '9' || bytes.HasPrefix(b, []byte("__")) {
		return false
	}
	for _, c := range b {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return string(b) != "le" && string(b) != sourceKey
}

// comment takes "# SESSION key="value",...": labels of all lines that follow
// on the connection. Other comments say nothing.
func (p *parser) comment(b []byte) error {
	rest, ok := bytes.CutPrefix(bytes.TrimLeft(b, " \t"), []byte("SESSION"))
	if !ok || len(rest) > 0 && rest[0] != ' ' && rest[0] != '\t' {
		return nil
	}
	if rest, err := p.pairs(rest, 0); err != nil {
		return err
	} else if len(rest) > 0 {
		return refuse(syntax, `after SESSION: want key="value",...`)
	}
	if err := unique(p.line.labels); err != nil {
		return err
	}
	p.session = p.session[:0]
	for _, l := range p.line.labels {
		p.session = append(p.session, label{bytes.Clone(l.key), bytes.Clone(l.value)})
	}
	p.line.labels = p.line.labels[:0]
	return nil
}

// labels reads what follows a brace, and the closing one.
func (p *parser) labels(b []byte) (rest []byte, err error) {
	if rest, err = p.pairs(b, '}'); err != nil {
		return nil, err
	}
	if len(rest) == 0 {
		return nil, refuse(syntax, "labels without a closing }")
	}
	return rest[1:], nil
}

// pairs reads key="value" with commas between until end, or the line's.
func (p *parser) pairs(b []byte, end byte) ([]byte, error) {
	for {
		b = bytes.TrimLeft(b, " \t")
		if len(b) == 0 || b[0] == end {
			return b, nil
		}
		n := bytes.IndexByte(b, '=')
		if n < 0 {
			return nil, refuse(syntax, `labels: want key="value"`)
		}
		key := bytes.TrimRight(b[:n], " \t")
		if !validKey(key) {
			return nil, refuse(badLabels, "label name %.40q; want letters, digits and _, no digit and no __ first, not %q and not \"le\"", key, sourceKey)
		}
		value, rest, err := p.quoted(bytes.TrimLeft(b[n+1:], " \t"))
		if err != nil {
			return nil, err
		}
		if len(p.line.labels) == maxLabels {
			return nil, refuse(badLabels, "more than %d labels", maxLabels)
		}
		p.line.labels = append(p.line.labels, label{key, value})
		b = bytes.TrimLeft(rest, " \t")
		if len(b) > 0 && b[0] == ',' {
			b = b[1:]
		} else if len(b) > 0 && b[0] != end {
			return nil, refuse(syntax, "labels: want a comma after the value of %.40q", key)
		}
	}
}

// quoted reads a value in quotes, in which \\, \" and \n stand for a
// backslash, a quote and a newline.
func (p *parser) quoted(b []byte) (value, rest []byte, err error) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, refuse(syntax, "labels: the value is not in quotes")
	}
	b = b[1:]
	n := bytes.IndexAny(b, `"\`)
	if n < 0 {
		return nil, nil, refuse(syntax, "labels: a value without its closing quote")
	}
	if value, rest = b[:n], b[n+1:]; b[n] == '\\' {
		if value, rest, err = p.unescape(b); err != nil {
			return nil, nil, err
		}
	}
	if len(value) > maxValue {
		return nil, nil, refuse(badLabels, "a label's value has %d bytes; at most %d", len(value), maxValue)
	}
	if !utf8.Valid(value) {
		return nil, nil, refuse(badLabels, "a label's value is not UTF-8")
	}
	return value, rest, nil
}

func (p *parser) unescape(b []byte) (value, rest []byte, err error) {
	begin := len(p.plain)
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c == '"' {
			return p.plain[begin:len(p.plain):len(p.plain)], b[i+1:], nil
		}
		if c == '\\' {
			if i++; i == len(b) {
				break
			}
			switch c = b[i]; c {
			case '\\', '"':
			case 'n':
				c = '\n'
			default:
				return nil, nil, refuse(syntax, `labels: \%c; want \\, \" or \n`, c)
			}
		}
		p.plain = append(p.plain, c)
	}
	return nil, nil, refuse(syntax, "labels: a value without its closing quote")
}

// join adds the session's labels that the line does not have itself, drops
// empty ones, which are none (as in Prometheus), and sorts.
func (p *parser) join() error {
	l := &p.line
	own := len(l.labels)
	for _, s := range p.session {
		if !slices.ContainsFunc(l.labels[:own], func(o label) bool { return bytes.Equal(o.key, s.key) }) {
			l.labels = append(l.labels, s)
		}
	}
	if err := unique(l.labels); err != nil {
		return err
	}
	l.labels = slices.DeleteFunc(l.labels, func(o label) bool { return len(o.value) == 0 })
	if len(l.labels) > maxLabels {
		return refuse(badLabels, "more than %d labels with those of the session", maxLabels)
	}
	return nil
}

// unique sorts labels and refuses those of one name.
func unique(labels []label) error {
	slices.SortFunc(labels, func(a, b label) int { return bytes.Compare(a.key, b.key) })
	for i := 1; i < len(labels); i++ {
		if bytes.Equal(labels[i].key, labels[i-1].key) {
			return refuse(badLabels, "label %.40q twice", labels[i].key)
		}
	}
	return nil
}

// sample reads TYPE:VALUE.
func (p *parser) sample(b []byte) error {
	kind, value, ok := bytes.Cut(b, []byte(":"))
	if !ok {
		return refuse(syntax, "no value; want NAME{LABELS} TYPE:VALUE")
	}
	l := &p.line
	switch string(kind) {
	case "counter":
		l.verb = counterSet
		if len(value) > 0 && value[0] == '+' {
			l.verb, value = counterAdd, value[1:]
		}
		if l.count, ok = number(value); !ok {
			return refuse(badNumber, "counter:%.40q; want a whole number below 2^64, or +N to add", value)
		}
	case "gauge":
		l.verb = gaugeSet
		v, err := strconv.ParseFloat(string(value), 64)
		if err != nil || bytes.ContainsAny(value, "xX_") {
			return refuse(badNumber, "gauge:%.40q; want a number", value)
		}
		l.value = v
	case "observe":
		l.verb = histObserve
		return p.observations(value)
	case "histogram":
		l.verb = histSet
		return p.histogram(value)
	default:
		return refuse(syntax, "type %.40q; want counter, gauge, histogram or observe", kind)
	}
	return nil
}

// number is a decimal number that fits 64 bits, and nothing else.
func number(b []byte) (n uint64, ok bool) {
	for _, c := range b {
		d := uint64(c - '0')
		if d > 9 || n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, len(b) > 0
}

// word takes a word off the front of a list with blanks between.
func word(b []byte) (w, rest []byte) {
	b = bytes.TrimLeft(b, " \t")
	if n := bytes.IndexAny(b, " \t"); n >= 0 {
		return b[:n], b[n:]
	}
	return b, nil
}

func (p *parser) observations(b []byte) error {
	for w, rest := word(b); len(w) > 0; w, rest = word(rest) {
		n, ok := number(w)
		if !ok {
			return refuse(badNumber, "observe:%.40q; want whole numbers, such as nanoseconds", w)
		}
		p.line.words = append(p.line.words, n)
	}
	if len(p.line.words) == 0 {
		return refuse(badNumber, "nothing was observed; want observe:N")
	}
	return nil
}
