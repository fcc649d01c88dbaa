// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"rezolus/internal/follow"
	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// TestAMachineThatSlept: its ticks are put where they belong, and not where
// they would be if its clock had been set.
func TestAMachineThatSlept(t *testing.T) {
	const every = int64(20 * time.Millisecond)
	schema, err := metric.NewSchema("one", []metric.Series{{Desc: &metric.Desc{Name: "reads", Kind: metric.Counter}, Start: 1}})
	if err != nil {
		t.Fatal(err)
	}
	first := time.Now().UnixNano() / every * every
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.rezolus.recording")
		e := store.NewEncoder(store.EncoderOptions{Interval: time.Duration(every)})
		var b []byte
		for n := int64(0); n < 6; n++ {
			at := n * every
			if n >= 3 {
				at += 10 * every
			}
			if n == 3 {
				b = e.AppendGap(b, store.Gap{From: first + 3*every, To: first + 12*every, Ticks: 10, Reason: store.Suspended})
			}
			s := metric.Snapshot{Run: &metric.Run{ID: [16]byte{1}}, Seq: uint64(n + 1), Wall: first + at, Mono: 1e9 + n*every, Interval: every,
				Frames: []metric.Frame{{Schema: schema, Begin: 1e9 + n*every, End: 1e9 + n*every, Values: []uint64{uint64(n + 1)}}}}
			if b, err = e.Append(b, &s); err != nil {
				t.Error(err)
			}
		}
		_, _ = w.Write(b) // the gatherer may have ended
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	s, stop := gather(t, time.Duration(every), Endpoint{Name: u.Host, Agent: &follow.Options{URL: u}})
	s.until(t, "all ticks", func() bool { return len(s.ticks) == 6 })
	stop()
	for n, tick := range s.ticks {
		if want := first + []int64{0, 1, 2, 13, 14, 15}[n]*every; tick.Wall != want {
			t.Errorf("tick %d is at %d, want %d", n, tick.Wall-first, want-first)
		}
	}
	if n, _ := value(&s.ticks[5], "recorder_endpoint_missed", "endpoint", u.Host); n != 10 {
		t.Errorf("%d ticks are missing, want 10", n)
	}
	if text := strings.Join(s.events, "\n"); !strings.Contains(text, store.Suspended) {
		t.Errorf("no event says it: %s", text)
	}
	if len(s.gaps) != 1 || s.gaps[0].Ticks != 10 {
		t.Errorf("gaps %v", s.gaps)
	}
}
