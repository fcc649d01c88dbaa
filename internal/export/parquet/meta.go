// SPDX-License-Identifier: Apache-2.0

package parquet

import (
	"encoding/binary"
	"fmt"
	"io"
)

// footer is what is kept of a file's metadata (parquet.thrift, FileMetaData).
// The chunks of a row group are read again when they are wanted: a day has a
// hundred thousand of them.
type footer struct {
	rows   int64
	root   *node
	groups []rowGroup
	kv     map[string]string
}

// rowGroup is where the list of chunks of a row group is in the file, and the
// times that its rows have.
type rowGroup struct {
	rows     int64
	at, size int64
	min, max int64 // Unix nanoseconds
	known    bool  // whether min and max are
}

// node is an element of the schema: a column, or a part of one.
type node struct {
	name       string
	kids       []*node
	leaf       int // number among the columns of values
	typ        int32
	repetition int32
	def, rep   int // the largest levels
	unsigned   bool
	scale      int64 // nanoseconds of the unit of a timestamp, else 0
}

// readFooter reads the metadata. The magic was checked.
func readFooter(r io.ReaderAt, size int64) (*footer, error) {
	var tail [4]byte
	if _, err := r.ReadAt(tail[:], size-8); err != nil {
		return nil, fmt.Errorf("read Parquet: %w", err)
	}
	b := make([]byte, binary.LittleEndian.Uint32(tail[:]))
	from := size - 8 - int64(len(b))
	if n, err := r.ReadAt(b, from); n < len(b) {
		return nil, fmt.Errorf("read Parquet: %w", err)
	}
	f := &footer{kv: map[string]string{}}
	t := &thriftReader{b: b}
	var nodes []*node
	t.fields(func(id int, typ byte) bool {
		switch {
		case id == 2 && typ == thriftList:
			n, _ := t.list()
			for ; n > 0 && !t.bad; n-- {
				nodes = append(nodes, readNode(t))
			}
		case id == 3 && typ == thriftI64:
			f.rows = t.int()
		case id == 4 && typ == thriftList:
			n, _ := t.list()
			for ; n > 0 && !t.bad; n-- {
				f.groups = append(f.groups, readGroup(t, from))
			}
		case id == 5 && typ == thriftList:
			n, _ := t.list()
			for ; n > 0 && !t.bad; n-- {
				f.keyValue(t)
			}
		default:
			return false
		}
		return true
	})
	if t.bad || len(nodes) == 0 {
		return nil, fmt.Errorf("%w: its metadata cannot be read", ErrDamaged)
	}
	tree := treeOf{nodes: nodes}
	if f.root = tree.next(0, 0, 0); f.root == nil || len(tree.nodes) > 0 {
		return nil, fmt.Errorf("%w: its schema is no tree", ErrDamaged)
	}
	return f, nil
}

func (f *footer) keyValue(t *thriftReader) {
	var key, value string
	t.fields(func(id int, typ byte) bool {
		switch {
		case id == 1 && typ == thriftBinary:
			key = t.string()
		case id == 2 && typ == thriftBinary:
			value = t.string()
		default:
			return false
		}
		return true
	})
	f.kv[key] = value
}

// readNode reads a SchemaElement. The number of its children is in leaf until
// there is a tree.
func readNode(t *thriftReader) *node {
	n := &node{typ: -1}
	t.fields(func(id int, typ byte) bool {
		switch {
		case id == 1 && typ == thriftI32:
			n.typ = int32(t.int())
		case id == 3 && typ == thriftI32:
			n.repetition = int32(t.int())
		case id == 4 && typ == thriftBinary:
			n.name = t.string()
		case id == 5 && typ == thriftI32:
			n.leaf = int(t.int())
		case id == 6 && typ == thriftI32:
			n.converted(t.int())
		case id == 10 && typ == thriftStruct:
			n.logical(t)
		default:
			return false
		}
		return true
	})
	return n
}

// converted takes the older way to say what logical types say.
func (n *node) converted(v int64) {
	switch v {
	case convertedUint:
		n.unsigned = true
	case convertedMillis:
		n.scale = 1e6
	case convertedMicros:
		n.scale = 1e3
	}
}

// logical takes a LogicalType: what is not an integer or a time is of no
// interest.
func (n *node) logical(t *thriftReader) {
	t.fields(func(id int, typ byte) bool {
		if typ != thriftStruct || id != logicalTime && id != logicalInteger {
			return false
		}
		t.fields(func(part int, typ byte) bool {
			switch {
			case id == logicalInteger && part == 2:
				n.unsigned = typ != thriftTrue
			case id == logicalTime && part == 2 && typ == thriftStruct:
				t.fields(func(unit int, _ byte) bool {
					n.scale = map[int]int64{1: 1e6, 2: 1e3, 3: 1}[unit]
					return false
				})
				return true
			}
			return false
		})
		return true
	})
}

// treeOf makes a tree of elements, which a file has in depth-first order.
type treeOf struct {
	nodes  []*node
	leaves int
}

// next takes a node and those below it. It is nil where there is none.
func (t *treeOf) next(def, rep, deep int) *node {
	if len(t.nodes) == 0 || deep > maxDepth {
		return nil
	}
	n := t.nodes[0]
	t.nodes = t.nodes[1:]
	if deep > 0 {
		switch n.repetition {
		case optional:
			def++
		case repeated:
			def, rep = def+1, rep+1
		}
	}
	n.def, n.rep = def, rep
	kids := n.leaf
	if kids == 0 && deep > 0 {
		n.leaf = t.leaves
		t.leaves++
	}
	for range kids {
		k := t.next(def, rep, deep+1)
		if k == nil {
			return nil
		}
		n.kids = append(n.kids, k)
	}
	return n
}

// readGroup reads a RowGroup of a footer that begins at the byte from.
func readGroup(t *thriftReader, from int64) (g rowGroup) {
	t.fields(func(id int, typ byte) bool {
		switch {
		case id == 1 && typ == thriftList:
			g.at = from + int64(t.at)
			t.skip(typ)
			g.size = from + int64(t.at) - g.at
		case id == 3 && typ == thriftI64:
			g.rows = t.int()
		default:
			return false
		}
		return true
	})
	return g
}

// chunkAt is a chunk of a file.
type chunkAt struct {
	offset, size int64
	values       int64
	codec        int64
	min, max     []byte // of the statistics, if there are
}

// chunks gives the chunks of a row group to f, by the number of their column
// of values, until it reports that it has enough.
func (f *footer) chunks(r io.ReaderAt, g *rowGroup, yield func(leaf int, c *chunkAt) (enough bool)) error {
	b := make([]byte, g.size)
	if n, err := r.ReadAt(b, g.at); n < len(b) {
		return fmt.Errorf("read Parquet: %w", err)
	}
	t := &thriftReader{b: b}
	n, _ := t.list()
	for leaf := 0; leaf < n && !t.bad; leaf++ {
		var c chunkAt
		t.fields(func(id int, typ byte) bool {
			if id != 3 || typ != thriftStruct {
				return false
			}
			c.read(t)
			return true
		})
		if !t.bad && yield(leaf, &c) {
			return nil
		}
	}
	if t.bad {
		return fmt.Errorf("%w: its metadata cannot be read", ErrDamaged)
	}
	return nil
}

// read reads a ColumnMetaData.
func (c *chunkAt) read(t *thriftReader) {
	dictionary := int64(0)
	t.fields(func(id int, typ byte) bool {
		switch {
		case id == 4 && typ == thriftI32:
			c.codec = t.int()
		case id == 5 && typ == thriftI64:
			c.values = t.int()
		case id == 7 && typ == thriftI64:
			c.size = t.int()
		case id == 9 && typ == thriftI64:
			c.offset = t.int()
		case id == 11 && typ == thriftI64:
			dictionary = t.int()
		case id == 12 && typ == thriftStruct:
			c.statistics(t)
		default:
			return false
		}
		return true
	})
	if dictionary > 0 && dictionary < c.offset {
		c.offset = dictionary
	}
}

// statistics takes the least and the largest value: those of the fields of
// which the order is defined.
func (c *chunkAt) statistics(t *thriftReader) {
	t.fields(func(id int, typ byte) bool {
		switch {
		case id == 5 && typ == thriftBinary:
			c.max = t.binary()
		case id == 6 && typ == thriftBinary:
			c.min = t.binary()
		default:
			return false
		}
		return true
	})
}
