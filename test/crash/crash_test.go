// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/ring"
	"rezolus/internal/store"
	"rezolus/internal/vfs"
)

var kills = flag.Int("kills", 0, "how often a process is killed (default 200, 40 in short mode)")

// childEnv makes the test binary a process that records: what, where, and
// the number of its first tick.
const childEnv = "REZOLUS_CRASH_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		if err := child(what, os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(tests(m))
}

func tests(m *testing.M) int {
	var err error
	if builds, err = os.MkdirTemp("", "crash"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(builds)
	// They wait most of the time.
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// child records until it is killed. It says the number of each tick on
// standard output once the tick is put.
func child(what, path, from string) error {
	first, err := strconv.ParseUint(from, 10, 64)
	if err != nil {
		return err
	}
	put, err := sink(what, path)
	if err != nil {
		return err
	}
	s, err := snapshot()
	if err != nil {
		return err
	}
	var said [8]byte
	for n := first; ; n++ {
		number(s, n)
		if err := put(s); err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(said[:], n)
		if _, err := os.Stdout.Write(said[:]); err != nil {
			return err
		}
	}
}

func sink(what, path string) (func(*metric.Snapshot) error, error) {
	if what == "ring" {
		// Small logs, so that it is killed while it rotates and seals.
		r, err := ring.Open(vfs.OS, ring.Options{Dir: path, Segment: 50 * time.Second, Age: 365 * 24 * time.Hour})
		if err != nil {
			return nil, err
		}
		return r.Put, nil
	}
	w, err := store.Create(vfs.OS, path, store.WriterOptions{})
	if err != nil {
		return nil, err
	}
	return w.Put, nil
}

// snapshot has a counter, which counts ticks, and words that change at random.
func snapshot() (*metric.Snapshot, error) {
	series := []metric.Series{{Desc: &metric.Desc{Name: "ticks", Kind: metric.Counter}, Start: 1}}
	noise := &metric.Desc{Name: "noise", Kind: metric.Gauge, Keys: []string{"id"}}
	for i := range 50 {
		series = append(series, metric.Series{Desc: noise, Values: []string{strconv.Itoa(i)}})
	}
	schema, err := metric.NewSchema("crash", series)
	if err != nil {
		return nil, err
	}
	run := &metric.Run{Started: time.Now().UnixNano(), ID: [16]byte{byte(os.Getpid()), byte(os.Getpid() >> 8), byte(os.Getpid() >> 16)}}
	return &metric.Snapshot{Run: run, Interval: int64(time.Second), Frames: []metric.Frame{{Schema: schema, Values: make([]uint64, schema.Words)}}}, nil
}

// number makes s the tick of a number. Time runs as fast as ticks can be put.
func number(s *metric.Snapshot, n uint64) {
	s.Seq++
	s.Wall = 1_763_700_000*int64(time.Second) + int64(n)*int64(time.Second)
	s.Mono = int64(n) * int64(time.Second)
	v := s.Frames[0].Values
	v[0] = n
	for range 5 {
		v[1+rand.IntN(len(v)-1)] = rand.Uint64()
	}
}

// killed runs a child for a while and returns the last tick whose Put had
// returned; none is one less than the first.
func killed(t *testing.T, what, path string, first uint64) uint64 {
	t.Helper()
	cmd := exec.Command(os.Args[0], path, strconv.FormatUint(first, 10))
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(out)
	last := first - 1
	after := rand.IntN(2000) // ticks, so that a slow machine is not killed before it began
	var timer *time.Timer
	for n := 0; ; n++ {
		var said [8]byte
		if _, err := io.ReadFull(in, said[:]); err != nil {
			break
		}
		last = binary.LittleEndian.Uint64(said[:])
		if n == after {
			timer = time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, func() {
				if err := cmd.Process.Kill(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	if timer == nil {
		t.Fatalf("the child ended by itself: %v", cmd.Wait())
	}
	var status *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &status) || status.Exited() {
		t.Fatalf("the child was not killed: %v", err)
	}
	return last
}

func times() int {
	switch {
	case *kills > 0:
		return *kills
	case testing.Short():
		return 40
	}
	return 200
}

// reader is a recording or a ring.
type reader interface {
	Select(ctx context.Context, from, to int64, want func(*metric.Series) bool) ([]metric.Column, error)
}

// ticks are the numbers of the ticks a reader has.
func ticks(t *testing.T, r reader) []uint64 {
	t.Helper()
	columns, err := r.Select(context.Background(), 0, math.MaxInt64, func(s *metric.Series) bool { return s.Desc.Name == "ticks" })
	if err != nil {
		t.Fatal(err)
	}
	if len(columns) == 0 {
		return nil
	}
	return columns[0].Word
}

func TestKilledRecorder(t *testing.T) {
	for range times() / 2 {
		path := filepath.Join(t.TempDir(), "x.rzr")
		last := killed(t, "recording", path, 1)
		r, err := store.Open(vfs.OS, path)
		if err != nil {
			t.Fatal(err)
		}
		got := ticks(t, r)
		// One tick more may be in the file than was said.
		if n := uint64(len(got)); n < last || n > last+1 || n > 0 && (got[0] != 1 || got[n-1] != n) {
			t.Errorf("%d ticks, %d were put", n, last)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKilledRing kills a ring again and again, which adopts what is there each
// time.
func TestKilledRing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	var want []uint64
	next := uint64(1)
	for range times() / 2 {
		last := killed(t, "ring", dir, next)
		r, err := ring.Open(vfs.OS, ring.Options{Dir: dir, Age: 365 * 24 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		got := ticks(t, r)
		for n := next; n <= last; n++ {
			want = append(want, n)
		}
		if len(got) == len(want)+1 { // one more than was said
			last++
			want = append(want, last)
		}
		if len(got) != len(want) {
			t.Fatalf("%d ticks, want %d", len(got), len(want))
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("tick %d is %d, want %d", i, got[i], want[i])
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		next = last + 100 // time goes on
	}
}
