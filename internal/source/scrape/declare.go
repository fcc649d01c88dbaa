// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"strings"
	"unicode/utf8"
)

// maxHelp is how much of a help text is kept.
const maxHelp = 512

// comment takes "# TYPE name kind" and "# HELP name text". One that is new, or
// was not in the scrape before, may change what samples are, so that all that
// follow are looked at closely.
func (p *text) comment(b []byte) {
	if seen := p.comments[string(b)]; seen != nil {
		p.slow = p.slow || *seen != p.scrape-1
		*seen = p.scrape
		return
	}
	fields := strings.SplitN(string(trim(b[1:])), " ", 3)
	if len(fields) < 2 || fields[0] != "TYPE" && fields[0] != "HELP" {
		return
	}
	if len(p.comments) >= 4*p.max { // the rest must do without
		return
	}
	p.slow = true
	p.comments[string(b)] = &[]uint64{p.scrape}[0]
	what := ""
	if len(fields) == 3 {
		what = strings.TrimSpace(fields[2])
	}
	d := p.declared[fields[1]]
	if fields[0] == "TYPE" {
		d.kind = what
	} else {
		d.help = helpText(what)
	}
	p.declared[fields[1]] = d
}

// helpText is a help without escapes, in the form of our own.
func helpText(s string) string {
	if len(s) > maxHelp {
		s = s[:maxHelp]
	}
	s = strings.NewReplacer(`\\`, `\`, `\n`, " ", `\"`, `"`).Replace(s)
	return strings.TrimSuffix(strings.ToValidUTF8(s, string(utf8.RuneError)), ".")
}

// settle forgets what was not declared in the scrape that ended.
func (p *text) settle() {
	if !p.slow {
		return
	}
	names := map[string]bool{}
	for line, seen := range p.comments {
		if *seen != p.scrape {
			delete(p.comments, line)
			continue
		}
		names[strings.SplitN(string(trim([]byte(line[1:]))), " ", 3)[1]] = true
	}
	for name := range p.declared {
		if !names[name] {
			delete(p.declared, name)
		}
	}
}

// members are the samples of a declared family, by what their names end in
// more than the family's. A sum of observations falls when one is negative, so
// that it is no counter.
var members = map[string]map[string]kind{
	"counter":        {"_total": counter, "_created": gauge},
	"histogram":      {"_bucket": counter, "_count": counter, "_sum": gauge, "_created": gauge},
	"summary":        {"_count": counter, "_sum": gauge, "_created": gauge},
	"gaugehistogram": {"_bucket": gauge, "_gcount": gauge, "_gsum": gauge},
	"info":           {"_info": gauge},
}

// describe is what a sample of the name is. What nobody declared is untyped:
// it may well be a counter, which rate() does not mind, but it may fall.
func (p *text) describe(name string) declared {
	if d, ok := p.declared[name]; ok {
		switch d.kind {
		case "counter":
			return declared{kind: counter, help: d.help}
		case "gauge", "summary", "histogram", "info", "stateset", "gaugehistogram":
			return declared{kind: gauge, help: d.help}
		}
		return declared{kind: untyped, help: d.help}
	}
	if at := strings.LastIndexByte(name, '_'); at > 0 {
		d := p.declared[name[:at]]
		if k, ok := members[d.kind][name[at:]]; ok {
			return declared{kind: k, help: d.help}
		}
	}
	return declared{}
}
