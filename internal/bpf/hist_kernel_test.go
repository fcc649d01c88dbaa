// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"

	"rezolus/internal/hist"
)

// TestKernelAndUserSpaceFindTheSameBucket runs hist.bpf.h in the kernel over a
// million values of every magnitude, and every bound of a bucket, for each
// grouping power.
func TestKernelAndUserSpaceFindTheSameBucket(t *testing.T) {
	raiseMemlock()
	for p := hist.MinPower; p <= hist.MaxPower; p++ {
		spec, err := ebpf.LoadCollectionSpec("testdata/hist.bpf.o")
		if err != nil {
			t.Fatal(err)
		}
		if err := spec.Variables["power"].Set(uint32(p)); err != nil {
			t.Fatal(err)
		}
		c, err := ebpf.NewCollection(spec)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		values, err := mapMemory(c.Maps["values"], 8)
		if err != nil {
			t.Fatal(err)
		}
		indices, err := mapMemory(c.Maps["indices"], 8)
		if err != nil {
			t.Fatal(err)
		}
		fillValues(values.words, p)
		n := len(values.words)
		if _, err := c.Programs["index_next"].Run(&ebpf.RunOptions{Data: make([]byte, 14), Repeat: uint32(n)}); err != nil {
			t.Fatal(err)
		}
		for i, v := range values.words {
			if got, want := indices.words[i], uint64(p.Index(v)); got != want {
				t.Fatalf("power %d: %d is in bucket %d in the kernel, %d here", p, v, got, want)
			}
		}
	}
}

func fillValues(values []uint64, p hist.Power) {
	r := rand.New(rand.NewPCG(23, 101))
	for i := range values {
		values[i] = r.Uint64() >> r.IntN(64)
	}
	for b := range p.Buckets() {
		values[2*b], values[2*b+1] = p.Bounds(b)
	}
}
