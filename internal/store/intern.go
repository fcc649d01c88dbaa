// SPDX-License-Identifier: Apache-2.0

package store

import (
	"runtime"
	"sync"
	"weak"

	"rezolus/internal/metric"
)

// interned holds the dictionaries that somebody has, by their hash. The
// segments of a day mostly name the same ones: they are parsed once and kept
// once, whatever files they stand in.
var interned struct {
	sync.Mutex
	schemas map[metric.Hash]weak.Pointer[metric.Schema]
}

// internedSchema is the schema of a hash, if somebody has it.
func internedSchema(hash metric.Hash) *metric.Schema {
	interned.Lock()
	defer interned.Unlock()
	return interned.schemas[hash].Value()
}

// intern returns the schema that stands for all of its hash.
func intern(s *metric.Schema) *metric.Schema {
	interned.Lock()
	defer interned.Unlock()
	if known := interned.schemas[s.Hash].Value(); known != nil {
		return known
	}
	if interned.schemas == nil {
		interned.schemas = map[metric.Hash]weak.Pointer[metric.Schema]{}
	}
	interned.schemas[s.Hash] = weak.Make(s)
	runtime.AddCleanup(s, forget, s.Hash)
	return s
}

// forget takes a hash off the list, unless it was taken on again since.
func forget(hash metric.Hash) {
	interned.Lock()
	defer interned.Unlock()
	if interned.schemas[hash].Value() == nil {
		delete(interned.schemas, hash)
	}
}
