// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/metric"
)

// policied is a source that notes how its thread is scheduled.
type policied struct {
	*fake
	policy atomic.Uint32
	reset  atomic.Bool
}

func (p *policied) Read(f *metric.Frame) error {
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return err
	}
	p.policy.Store(attr.Policy)
	p.reset.Store(attr.Flags&unix.SCHED_FLAG_RESET_ON_FORK != 0)
	return p.fake.Read(f)
}

func TestFineTicksGoFirst(t *testing.T) {
	a := New(Options{Run: &metric.Run{}, Realtime: 10 * time.Millisecond})
	s := &policied{fake: newFake("s")}
	a.Add(s, SourceOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	policy := func(interval time.Duration, want uint32) {
		t.Helper()
		c := subscribe(t, a, interval, 100)
		defer c.Close()
		for range 3 {
			c.Release(<-c.C())
		}
		if got := s.policy.Load(); got != want || want == unix.SCHED_FIFO && !s.reset.Load() {
			t.Errorf("at %v the policy is %d, want %d, and children have it: %v", interval, got, want, !s.reset.Load())
		}
		if got := a.Status().Realtime; got != (want == unix.SCHED_FIFO) {
			t.Errorf("at %v the status says %v", interval, got)
		}
	}
	policy(50*time.Millisecond, unix.SCHED_NORMAL)
	policy(10*time.Millisecond, unix.SCHED_FIFO)
	policy(20*time.Millisecond, unix.SCHED_NORMAL)
}

func TestARefusedPriorityIsAskedForOnce(t *testing.T) {
	var asked []bool
	refusal := errors.New("refused")
	r := realtime{up: time.Second, set: func(on bool) error { asked = append(asked, on); return refusal }}
	var told []error
	for _, least := range []time.Duration{0, time.Minute, time.Second, time.Millisecond, time.Minute, time.Second} {
		told = append(told, r.follow(least))
	}
	if !slices.Equal(asked, []bool{true}) || !slices.Equal(told, []error{nil, nil, refusal, nil, nil, nil}) || r.on.Load() {
		t.Errorf("asked %v, told %v", asked, told)
	}
}
