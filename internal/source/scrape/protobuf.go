// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"rezolus/internal/metric"
)

// protobuf reads the messages io.prometheus.client.MetricFamily, each behind
// its length: the only form in which native histograms come. The numbers of
// fields are those of metrics.proto of github.com/prometheus/client_model.
//
// All else becomes the series that the text format gives, so that an endpoint
// may answer in one and then in the other. Timestamps and exemplars are passed
// over, as in text.
type protobuf struct {
	*table
	families map[string]*announced
	good     uint64 // the last scrape that was whole
	key      []byte // of the present sample; keyed: of the present metric
	keyed    int
	labels   []byte // of the present metric, as they came

	// Of the present family and metric.
	name    []byte
	known   *announced
	value   []byte
	native  nativeHistogram
	decoded histogram
}

// announced is what a family says before its metrics.
type announced struct {
	typ        uint64
	help, unit string
}

// The types of a family, which say which field of a metric its value is in.
const (
	typeCounter = iota
	typeGauge
	typeSummary
	typeUntyped
	typeHistogram
	typeGaugeHistogram
)

var valueFields = [...]protowire.Number{typeCounter: 3, typeGauge: 2, typeSummary: 4, typeUntyped: 5, typeHistogram: 7, typeGaugeHistogram: 7}

var (
	errWire  = errors.New("the bytes are no protocol buffer")
	errType  = errors.New("a family of a type that is not known")
	errEmpty = errors.New("a metric without a value of its family's type")
)

func newProtobuf(t *table) *protobuf {
	return &protobuf{table: t, families: map[string]*announced{}}
}

// parse takes all samples of body.
func (p *protobuf) parse(body []byte) error {
	if p.good != p.scrape-1 { // others may have changed what was known
		clear(p.families)
	}
	defer func() { p.created, p.buckets = 0, nil }()
	for at := 0; at < len(body); {
		message, n := protowire.ConsumeBytes(body[at:])
		if n < 0 {
			return fmt.Errorf("byte %d: %w", at, errWire)
		}
		if err := p.family(message); err != nil {
			return fmt.Errorf("family %.100q at byte %d: %w", p.name, at, err)
		}
		at += n
	}
	return nil
}

// settle keeps what was said in a scrape that was whole.
func (p *protobuf) settle() { p.good = p.scrape }

// fields calls f for every field of a message: with its bytes, or with the
// number that it is.
func fields(b []byte, f func(field protowire.Number, bytes []byte, number uint64) error) error {
	for len(b) > 0 {
		field, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errWire
		}
		b = b[n:]
		var bytes []byte
		var number uint64
		switch typ {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			number, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(field, typ, b)
		}
		if n < 0 {
			return errWire
		}
		b = b[n:]
		if err := f(field, bytes, number); err != nil {
			return err
		}
	}
	return nil
}

func (p *protobuf) family(b []byte) error {
	var help, unit []byte
	var typ uint64
	p.name = nil
	err := fields(b, func(field protowire.Number, bytes []byte, number uint64) error {
		switch field {
		case 1:
			p.name = bytes
		case 2:
			help = bytes
		case 3:
			typ = number
		case 5:
			unit = bytes
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case len(p.name) == 0:
		return errName
	case typ >= uint64(len(valueFields)):
		return errType
	}
	p.announce(typ, help, unit)
	return fields(b, func(field protowire.Number, bytes []byte, _ uint64) error {
		if field != 4 {
			return nil
		}
		return p.metric(bytes)
	})
}

// announce takes what a family says of itself. One that is new may change what
// series are, so that all that follow are looked at closely.
func (p *protobuf) announce(typ uint64, help, unit []byte) {
	p.known = p.families[string(p.name)]
	if k := p.known; k != nil && k.typ == typ && k.help == string(help) && k.unit == string(unit) {
		return
	}
	p.slow = true
	p.known = &announced{typ, string(help), string(unit)}
	if len(p.families) < p.max {
		p.families[string(p.name)] = p.known
	}
}

func (p *protobuf) metric(b []byte) error {
	p.key = append(append(append(p.key[:0], 0xff, byte(p.known.typ)), p.name...), 0xff)
	p.labels, p.value = p.labels[:0], nil
	want := valueFields[p.known.typ]
	err := fields(b, func(field protowire.Number, bytes []byte, _ uint64) error {
		switch field {
		case 1:
			p.labels = protowire.AppendBytes(p.labels, bytes)
		case want:
			if p.value = bytes; bytes == nil {
				return errWire
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if p.value == nil {
		return errEmpty
	}
	p.key = append(p.key, p.labels...)
	p.keyed = len(p.key)
	p.created, p.buckets = 0, nil
	switch p.known.typ {
	case typeSummary:
		return p.summary()
	case typeHistogram, typeGaugeHistogram:
		return p.histogram()
	}
	return p.single()
}

// single takes a counter, a gauge or an untyped metric.
func (p *protobuf) single() error {
	var v float64
	err := fields(p.value, func(field protowire.Number, bytes []byte, number uint64) (err error) {
		switch {
		case field == 1:
			v = math.Float64frombits(number)
		case field == 3 && p.known.typ == typeCounter:
			p.created, err = moment(bytes)
		}
		return err
	})
	if err != nil {
		return err
	}
	return p.take(sample{kind: [...]kind{typeCounter: counter, typeGauge: gauge, typeUntyped: untyped}[p.known.typ], scaled: true}, number(v))
}

// moment is a google.protobuf.Timestamp in Unix nanoseconds; 0 if it is none.
func moment(b []byte) (int64, error) {
	var seconds, nanos int64
	err := fields(b, func(field protowire.Number, _ []byte, number uint64) error {
		switch field {
		case 1:
			seconds = int64(number)
		case 2:
			nanos = int64(int32(number))
		}
		return nil
	})
	if seconds <= 0 || seconds >= math.MaxInt64/1_000_000_000 || nanos < 0 || nanos >= 1e9 {
		return 0, err
	}
	return seconds*1e9 + nanos, err
}

func (p *protobuf) summary() error {
	var count uint64
	var sum float64
	err := fields(p.value, func(field protowire.Number, bytes []byte, number uint64) (err error) {
		switch field {
		case 1:
			count = number
		case 2:
			sum = math.Float64frombits(number)
		case 4:
			p.created, err = moment(bytes)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = fields(p.value, func(field protowire.Number, bytes []byte, _ uint64) error {
		if field != 3 {
			return nil
		}
		var quantile, value float64
		err := fields(bytes, func(field protowire.Number, _ []byte, number uint64) error {
			switch field {
			case 1:
				quantile = math.Float64frombits(number)
			case 2:
				value = math.Float64frombits(number)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return p.take(sample{role: 'q', label: "quantile", bound: quantile, kind: gauge, scaled: true}, number(value))
	})
	if err != nil {
		return err
	}
	return errors.Join(p.take(sample{role: 's', suffix: "_sum", kind: gauge, scaled: true}, number(sum)),
		p.take(sample{role: 'c', suffix: "_count", kind: counter}, whole(count)))
}

// whole is the reading of a whole number.
func whole(n uint64) reading { return reading{float: float64(n), whole: n, exact: true} }

// sample is one of the series that a metric is in our terms.
type sample struct {
	role   byte // tells it from the metric's others
	suffix string
	label  string // one more, of the value bound
	bound  float64
	kind   kind
	scaled bool // it has the family's unit
}

// take takes a sample of the present metric.
func (p *protobuf) take(s sample, r reading) error {
	p.key = append(p.key[:p.keyed], s.role)
	if s.label != "" {
		p.key = protowire.AppendFixed64(p.key, math.Float64bits(s.bound))
	}
	if p.quick(p.key, r) {
		return nil
	}
	if !utf8.Valid(p.name) {
		return errUTF8
	}
	var labels []pair
	for rest := p.labels; len(rest) > 0; {
		label, n := protowire.ConsumeBytes(rest)
		rest = rest[n:]
		var l pair
		err := fields(label, func(field protowire.Number, bytes []byte, _ uint64) error {
			switch field {
			case 1:
				l.key = string(bytes)
			case 2:
				l.value = string(bytes)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if !utf8.ValidString(l.key) || !utf8.ValidString(l.value) {
			return errUTF8
		}
		labels = append(labels, l)
	}
	if s.label != "" {
		labels = append(labels, pair{s.label, strconv.FormatFloat(s.bound, 'g', -1, 64)})
	}
	d := declared{kind: s.kind, help: plainHelp(p.known.help)}
	if s.scaled {
		d.unit = metric.Unit(mapName(p.known.unit))
	}
	p.add(p.key, string(p.name)+s.suffix, d, labels, r)
	return nil
}

// plainHelp is a help that nobody escaped, in the form of our own.
func plainHelp(s string) string {
	if len(s) > maxHelp {
		s = s[:maxHelp]
	}
	return strings.TrimSuffix(strings.ReplaceAll(strings.ToValidUTF8(s, string(utf8.RuneError)), "\n", " "), ".")
}
