// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/agent"
	"rezolus/internal/host"
	"rezolus/internal/source/procfs"
	"rezolus/internal/store"
)

// agentCost runs an agent with every sampler in this process for a while at an
// interval, encodes its ticks as a recorder would, and prints what that took.
func agentCost(interval, length time.Duration) error {
	c := configuration{samplers: []string{"*"}}
	loaded, err := c.load()
	if err != nil {
		return err
	}
	defer loaded.close()
	stat, err := procfs.NewStat(true, true)
	if err != nil {
		return err
	}
	a := agent.New(agent.Options{Run: host.NewRun("bench")})
	a.Add(loaded.probe.Source(), agent.SourceOptions{})
	for _, s := range loaded.things.Sources() {
		a.Add(s, agent.SourceOptions{})
	}
	a.Add(stat, agent.SourceOptions{Every: 100 * time.Millisecond})
	sub, err := a.Subscribe("bench", interval, 64)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	encoder := store.NewEncoder(store.EncoderOptions{Interval: interval})
	var buf []byte
	var ticks, bytes, series int
	before, mallocs := usage()
	for s := range sub.C() {
		buf, err = encoder.Append(buf[:0], s)
		if err != nil {
			return err
		}
		if ticks++; ticks > 1 { // the first has the schemas
			bytes += len(buf)
		} else {
			before, mallocs = usage()
		}
		series = 0
		for _, f := range s.Frames {
			series += len(f.Schema.Series)
		}
		sub.Release(s)
	}
	after, allocated := usage()
	n := float64(max(1, ticks-1))
	fmt.Printf("%-10v %6d ticks, %d missed, %8.1f us of CPU a tick (%.2f %% of a CPU), %6.0f bytes a tick, %.1f allocations a tick, %d series\n",
		interval, ticks, a.Status().Missed, float64(after-before)/n/1e3, 100*float64(after-before)/float64(length), float64(bytes)/n,
		float64(allocated-mallocs)/n, series)
	return <-ended
}

// usage is the CPU time of this process in nanoseconds and its allocations.
func usage() (cpu int64, mallocs uint64) {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r) // cannot fail for oneself
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return r.Utime.Nano() + r.Stime.Nano(), m.Mallocs
}
