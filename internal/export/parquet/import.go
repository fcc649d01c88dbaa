// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rezolus/internal/metric"
)

// columns finds out what each column of the file is.
func (f *File) columns() error {
	meta := f.columnMeta()
	im := importer{f: f, descs: map[string]*metric.Desc{}, origins: map[string]*origin{},
		byName: map[string]*metric.Desc{}, seen: map[string]bool{}}
	if text := f.meta[metaDescriptions]; json.Unmarshal([]byte(text), &im.help) != nil {
		im.help = nil
	}
	if err := im.ownSources(); err != nil {
		return err
	}
	for i, c := range f.root.kids {
		im.column(i, c, meta[c.name])
	}
	if f.time == nil {
		return fmt.Errorf("%w: no column %q or %q of times", ErrForeign, columnTimestamp, columnTime)
	}
	return nil
}

// columnMeta is the metadata of the columns, which only Arrow's schema has.
func (f *File) columnMeta() map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, c := range decodeArrow(f.meta[arrowKey]) {
		all[c.name] = c.meta
	}
	return all
}

// importer turns columns into series.
type importer struct {
	f       *File
	help    map[string]string
	descs   map[string]*metric.Desc // by what they say
	byName  map[string]*metric.Desc // by source and metric
	origins map[string]*origin
	seen    map[string]bool // series, by source and identity
	own     map[int]string  // of a file of ours: the source of each column
}

// ownSources takes from the facts which column is of which source.
func (im *importer) ownSources() error {
	if im.f.facts == nil {
		return nil
	}
	im.own = map[int]string{}
	n := len(im.f.root.kids)
	all := make([]spans, 0, len(im.f.facts.Sources))
	for _, s := range im.f.facts.Sources {
		all = append(all, s.Columns)
	}
	for _, s := range im.f.facts.Starts {
		all = append(all, s.Columns)
	}
	for _, s := range all {
		for _, span := range s {
			if span[0] < 0 || span[0] > span[1] || span[1] > n {
				return fmt.Errorf("%w: columns %d to %d of %d", ErrDamaged, span[0], span[1], n)
			}
		}
	}
	for _, s := range im.f.facts.Sources {
		s.Columns.each(func(i int) { im.own[i] = s.Name })
	}
	return nil
}

func (im *importer) skip(c *node, format string, args ...any) {
	im.f.report.Skipped = append(im.f.report.Skipped, Skipped{c.name, fmt.Sprintf(format, args...)})
}

// column takes one column of the file.
func (im *importer) column(number int, c *node, meta map[string]string) {
	in, kind := shape(c)
	if in == nil {
		im.skip(c, "neither numbers nor lists of them")
		return
	}
	name := c.name
	switch {
	case name == columnTimestamp || name == columnTime && im.f.time == nil:
		if kind == listOf || kind == floats {
			im.skip(c, "not a time")
			return
		}
		in.scale = max(1, in.leaf.scale)
		im.f.time = in
		return
	case name == columnDuration && meta[keyMetric] == "":
		if kind == unsigned || kind == signed {
			im.f.duration = in
		}
		return
	case strings.HasSuffix(name, beginSuffix) || strings.HasSuffix(name, widthSuffix):
		im.window(c, in, kind)
		return
	}
	if meta[keyMetric] == "" && meta[keyType] == "" {
		im.skip(c, "no metadata that says what it measures")
		return
	}
	im.series(number, c, in, kind, meta)
}

// window takes a column that says when a source was read.
func (im *importer) window(c *node, in *input, kind shapeKind) {
	base, isBegin := strings.CutSuffix(c.name, beginSuffix)
	if !isBegin {
		base = strings.TrimSuffix(c.name, widthSuffix)
	}
	if im.own == nil || kind == listOf || kind == floats {
		im.skip(c, "the time in which a value was read")
		return
	}
	if o := im.origin(base); isBegin {
		o.begin = in
	} else {
		o.width = in
	}
}

func (im *importer) origin(name string) *origin {
	o := im.origins[name]
	if o == nil {
		o = &origin{name: name}
		im.origins[name] = o
		im.f.origins = append(im.f.origins, o)
	}
	return o
}

// series takes a column that is a series.
func (im *importer) series(number int, c *node, in *input, kind shapeKind, meta map[string]string) {
	d, values, why := im.describe(c, kind, meta, in)
	if why != "" {
		im.skip(c, "%s", why)
		return
	}
	source, own := im.own[number]
	if !own {
		if source = d.Sampler; source == "" {
			source = "parquet"
		}
		if node, _, ok := strings.Cut(c.name, "::"); ok {
			source = node + "/" + source
			d, values = withLabel(d, values, metaNode, node)
		}
	}
	in.desc, in.values = d, values
	if own {
		in.desc = im.same(d)
	} else {
		source = im.place(in, source, c.name)
	}
	o := im.origin(source)
	o.columns = append(o.columns, in)
	in.number = number
	im.f.series[number] = in
}

// same is the description that stands for all that are the same.
func (im *importer) same(d *metric.Desc) *metric.Desc {
	id := string(identity(nil, d, slices.Repeat([]string{""}, len(d.Keys))))
	if im.descs[id] == nil {
		im.descs[id] = d
	}
	return im.descs[id]
}

// place finds the source of a column of others: one in which the metric has no
// other description. The series of two columns that say the same of
// themselves get a label that tells them apart.
func (im *importer) place(in *input, source, column string) string {
	id := string(identity(nil, in.desc, in.values))
	if im.seen[source+"\x00"+id] {
		in.desc, in.values = withLabel(in.desc, in.values, "column", column)
	}
	im.seen[source+"\x00"+id] = true
	in.desc = im.same(in.desc)
	name := source
	for i := 2; ; i++ {
		key := name + "\x00" + in.desc.Name
		if known := im.byName[key]; known == nil || known == in.desc {
			im.byName[key] = in.desc
			return name
		}
		name = source + "#" + strconv.Itoa(i)
	}
}

// withLabel adds a label, unless there is one of that name.
func withLabel(d *metric.Desc, values []string, key, value string) (*metric.Desc, []string) {
	at, ok := slices.BinarySearch(d.Keys, key)
	if ok {
		return d, values
	}
	with := *d
	with.Keys = slices.Insert(slices.Clone(d.Keys), at, key)
	return &with, slices.Insert(slices.Clone(values), at, value)
}
