// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// text reads the text formats of Prometheus, version 0.0.4, and of OpenMetrics,
// version 1.0. It keeps what was declared, so that a scrape which says the same
// as the one before allocates nothing.
//
// Timestamps and exemplars are passed over: a sample is of when it was scraped.
type text struct {
	*table
	declared map[string]declaration
	comments map[string]*uint64 // HELP and TYPE lines: the scrape they were in last
}

// declaration is what the comments said of a family.
type declaration struct{ kind, help string }

func newText(t *table) *text {
	return &text{table: t, declared: map[string]declaration{}, comments: map[string]*uint64{}}
}

var (
	errNoNewline = errors.New("the last line has no end")
	errName      = errors.New("no metric name")
	errLabels    = errors.New("the labels are not well-formed")
	errValue     = errors.New("the value is no number")
	errRest      = errors.New("something behind the value that is neither timestamp nor exemplar")
	errUTF8      = errors.New("not UTF-8")
)

// parse takes all samples of body.
func (p *text) parse(body []byte) error {
	for number := 1; len(body) > 0; number++ {
		line, rest, ended := bytes.Cut(body, newline)
		if !ended && string(line) != eof {
			return fmt.Errorf("line %d: %w", number, errNoNewline)
		}
		if err := p.line(trim(line)); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		body = rest
	}
	return nil
}

// eof is the last line of OpenMetrics, which may lack its newline.
const eof = "# EOF"

var newline = []byte{'\n'}

// trim takes blanks, and the \r that some write, off both ends.
func trim(b []byte) []byte {
	b = skipBlanks(b)
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t' || b[len(b)-1] == '\r') {
		b = b[:len(b)-1]
	}
	return b
}

func skipBlanks(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	return b
}

// token is what stands before the next blank.
func token(b []byte) (t, rest []byte) {
	for i, c := range b {
		if c == ' ' || c == '\t' {
			return b[:i], skipBlanks(b[i:])
		}
	}
	return b, nil
}

func (p *text) line(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if b[0] == '#' {
		p.comment(b)
		return nil
	}
	n, err := keyLength(b)
	if err != nil {
		return err
	}
	key, rest := b[:n], skipBlanks(b[n:])
	value, rest := token(rest)
	r, ok := parseReading(value)
	if !ok {
		return errValue
	}
	if len(rest) > 0 && rest[0] != '#' {
		var stamp []byte
		stamp, rest = token(rest)
		if _, ok := parseReading(stamp); !ok {
			return errRest
		}
	}
	if len(rest) > 0 && rest[0] != '#' {
		return errRest
	}
	if p.quick(key, r) {
		return nil
	}
	return p.sample(key, r)
}

// keyLength is the length of a sample's name and labels.
func keyLength(b []byte) (int, error) {
	n := 0
	for n < len(b) && isName(b[n], n) {
		n++
	}
	open := n
	for open < len(b) && (b[open] == ' ' || b[open] == '\t') {
		open++
	}
	if open == len(b) || b[open] != '{' {
		if n == 0 || open == n {
			return 0, errName
		}
		return n, nil
	}
	quoted := false
	for i := open + 1; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '}' && !quoted:
			return i + 1, nil
		}
	}
	return 0, errLabels
}

func isName(c byte, at int) bool {
	return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || c == ':' || at > 0 && c >= '0' && c <= '9'
}

// parseReading reads a number as both formats write it.
func parseReading(b []byte) (reading, bool) {
	whole, digits := uint64(0), len(b) > 0
	for _, c := range b {
		d := uint64(c - '0')
		if d > 9 || whole > (math.MaxUint64-d)/10 {
			digits = false
			break
		}
		whole = whole*10 + d
	}
	if digits {
		return reading{float: float64(whole), whole: whole, exact: true}, true
	}
	if len(b) == 0 || len(b) > 64 || bytes.ContainsAny(b, "xXpP_") {
		return reading{}, false
	}
	v, err := strconv.ParseFloat(string(b), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // out of range is ±Inf
		return reading{}, false
	}
	return number(v), true
}

// sample takes a series that was not written so before.
func (p *text) sample(key []byte, r reading) error {
	if !utf8.Valid(key) {
		return errUTF8
	}
	name, labels, err := split(string(key))
	if err != nil {
		return err
	}
	p.add(key, name, p.describe(name), labels, r)
	return nil
}

// split takes a sample's key apart.
func split(key string) (name string, labels []pair, err error) {
	name, rest, ok := strings.Cut(key, "{")
	name = strings.TrimRight(name, " \t")
	if !ok {
		return name, nil, nil
	}
	for rest = strings.TrimLeft(rest, " \t"); rest != "}"; {
		var key, value string
		if key, rest, err = labelName(rest); err != nil {
			return "", nil, err
		}
		rest = strings.TrimLeft(rest, " \t")
		switch {
		case strings.HasPrefix(rest, "="):
			if value, rest, err = unquote(strings.TrimLeft(rest[1:], " \t")); err != nil {
				return "", nil, err
			}
			labels = append(labels, pair{key, value})
		case name == "": // the name stands in the braces: {"my.name",...}
			name = key
		default:
			return "", nil, errLabels
		}
		rest = strings.TrimLeft(rest, " \t")
		if after, comma := strings.CutPrefix(rest, ","); comma {
			rest = strings.TrimLeft(after, " \t")
		} else if rest != "}" {
			return "", nil, errLabels
		}
	}
	if name == "" {
		return "", nil, errName
	}
	return name, labels, nil
}

// labelName reads a label's name, which may be quoted.
func labelName(s string) (name, rest string, err error) {
	if strings.HasPrefix(s, `"`) {
		return unquote(s)
	}
	n := 0
	for n < len(s) && s[n] != ':' && isName(s[n], n) {
		n++
	}
	if n == 0 {
		return "", "", errLabels
	}
	return s[:n], s[n:], nil
}

// unquote reads a string in quotes, in which \\, \" and \n stand for a
// backslash, a quote and a newline. Others stand for themselves, backslash and
// all, as Prometheus has it.
func unquote(s string) (value, rest string, err error) {
	if !strings.HasPrefix(s, `"`) {
		return "", "", errLabels
	}
	s = s[1:]
	if n := strings.IndexAny(s, `"\`); n >= 0 && s[n] == '"' {
		return s[:n], s[n+1:], nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), s[i+1:], nil
		case c == '\\' && i+1 < len(s):
			i++
			switch s[i] {
			case '\\', '"':
				b.WriteByte(s[i])
			case 'n':
				b.WriteByte('\n')
			default:
				b.WriteByte('\\')
				b.WriteByte(s[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", "", errLabels
}
