// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
)

// Series is one line of a metric: a description with label values. Its
// identity is the metric's name and its labels, for ever; where it lies in a
// frame is no part of it.
type Series struct {
	Desc   *Desc
	Values []string // label values, in the order of Desc.Keys
	// Start is when this series began to count, in Unix nanoseconds: a
	// counter was zero then. A reset is a later start, never a guess.
	Start int64
	// Off is the series' first word in the frame. NewSchema sets it.
	Off int
}

// Label is the value of the label key, and whether the series has it.
func (s *Series) Label(key string) (string, bool) {
	i, ok := slices.BinarySearch(s.Desc.Keys, key)
	if !ok {
		return "", false
	}
	return s.Values[i], true
}

// Hash is the content hash of a schema: the first 16 bytes of the SHA-256 of
// its encoding.
type Hash [16]byte

// String is the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Schema is the ordered series of one source. It does not change once made:
// the same pointer means the same membership, and a series that is born or
// dies makes a new schema.
type Schema struct {
	Source string // the source's name, unique in the agent
	Series []Series
	Words  int // length of a frame's Values
	Hash   Hash
}

// NewSchema lays out the series in the given order, checks them and computes
// the hash. It keeps the slice.
func NewSchema(source string, series []Series) (*Schema, error) {
	s := &Schema{Source: source, Series: series}
	if source == "" {
		return nil, fmt.Errorf("schema without a source name")
	}
	byName := map[string]*Desc{}
	for i := range series {
		d := series[i].Desc
		if known := byName[d.Name]; known == nil {
			if err := d.Validate(); err != nil {
				return nil, fmt.Errorf("schema %s: %w", source, err)
			}
			byName[d.Name] = d
		} else if known != d {
			return nil, fmt.Errorf("schema %s: metric %s is described twice", source, d.Name)
		}
		if len(series[i].Values) != len(d.Keys) {
			return nil, fmt.Errorf("schema %s: metric %s has %d label values for %d keys",
				source, d.Name, len(series[i].Values), len(d.Keys))
		}
		series[i].Off = s.Words
		s.Words += d.Words()
	}
	// A schema of a thousand series takes 100 kB, and comes again with every
	// cgroup that does.
	buf, _ := scratch.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	*buf = s.AppendBinary((*buf)[:0])
	sum := sha256.Sum256(*buf)
	scratch.Put(buf)
	copy(s.Hash[:], sum[:])
	return s, nil
}

// scratch has what schemas are encoded into to be hashed: *[]byte.
var scratch sync.Pool
