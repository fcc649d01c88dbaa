// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"os"
	"slices"
	"testing"

	"rezolus/internal/bpf"
)

// startSome loads a built-in probe with only the samplers named on. They must
// be healthy.
func startSome(t testing.TB, object string, h bpf.Host, samplers ...string) *meter {
	t.Helper()
	m := load(t, object, h, samplers...)
	for _, s := range m.probe.Status() {
		if s.State != bpf.Healthy && slices.Contains(samplers, s.Name) {
			t.Fatalf("sampler %s is %s: %s", s.Name, s.State, s.Reason)
		}
	}
	m.best()
	return m
}

// best asserts that what runs is the best that this kernel can: no program was
// refused for another reason than that the kernel lacks what it takes.
func (m *meter) best() {
	m.t.Helper()
	for _, s := range m.probe.Status() {
		for _, p := range s.Programs {
			for _, tried := range p.Tried {
				if !tried.Unsupported {
					m.t.Errorf("%s: %s", tried.Hook, tried.Reason)
				}
			}
		}
	}
}

// unsupported asserts that this kernel cannot have the sampler, and that its
// status says why.
func unsupported(t testing.TB, object string, h bpf.Host, sampler string) {
	t.Helper()
	m := load(t, object, h, sampler)
	for _, s := range m.probe.Status() {
		if s.Name == sampler && (s.State != bpf.Unsupported || s.Reason == "") {
			t.Errorf("sampler %s is %s (%s), want unsupported with a reason", s.Name, s.State, s.Reason)
		}
	}
}

// function loads a built-in probe with one sampler on that needs to attach to a
// function of the kernel. Where this kernel cannot, it asserts that the status
// says why, and is nil; those of the virtual machines can.
func function(t testing.TB, object string, h bpf.Host, sampler string) *meter {
	t.Helper()
	m := load(t, object, h, sampler)
	for _, s := range m.probe.Status() {
		switch {
		case s.Name != sampler || s.State == bpf.Healthy:
		case s.State == bpf.Unsupported && s.Reason != "" && os.Getenv("REZOLUS_VM") == "":
			t.Logf("not on this kernel: %s", s.Reason)
			return nil
		default:
			t.Fatalf("sampler %s is %s: %s", s.Name, s.State, s.Reason)
		}
	}
	m.best()
	return m
}
