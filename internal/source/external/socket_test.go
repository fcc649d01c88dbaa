// SPDX-License-Identifier: Apache-2.0

package external

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// serve is a source on a socket of its own. The schema is made when the test
// reads, not behind it.
func serve(t *testing.T, o Options) *bench { return serveBy(t, o, host.Mono) }

// serveBy is serve with a clock.
func serveBy(t *testing.T, o Options, mono func() int64) *bench {
	t.Helper()
	o.Path = filepath.Join(t.TempDir(), "run", "external.sock")
	b := &bench{Source: newSource(o.withDefaults()), t: t}
	b.mono = mono
	if err := b.build(); err != nil {
		t.Fatal(err)
	}
	if err := b.listen(); err != nil {
		t.Fatal(err)
	}
	b.running.Go(b.accept)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) dial() *net.UnixConn {
	b.t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: b.options.Path, Net: "unix"})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	return c
}

// finish ends what a client says, and returns the replies once the source has
// taken all of it.
func finish(t testing.TB, c *net.UnixConn) string {
	t.Helper()
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(time.Minute))
	replies, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(replies)
}

// push sends text on a connection of its own.
func (b *bench) push(text string) (replies string) {
	b.t.Helper()
	c := b.dial()
	if text != "" {
		if _, err := io.WriteString(c, text); err != nil {
			b.t.Fatal(err)
		}
	}
	return finish(b.t, c)
}

// word is the first word of a series.
func (b *bench) word(id string) uint64 {
	b.t.Helper()
	s, words := find(b.read(), id)
	if s == nil {
		b.t.Fatalf("%s is not there", id)
	}
	return words[0]
}

func TestLinesInAnyPieces(t *testing.T) {
	b := serve(t, Options{})
	text := "# SESSION app=\"x\"\na counter:17\nb{z=\"q\\\"\"} counter:18\r\n\nh observe:5 5 5\n"
	for size := 1; size <= len(text); size++ {
		c := b.dial()
		for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
			if _, err := io.WriteString(c, rest[:min(size, len(rest))]); err != nil {
				t.Fatal(err)
			}
		}
		if replies := finish(t, c); replies != "" {
			t.Fatalf("in pieces of %d: %s", size, replies)
		}
	}
	if got := b.word("a x external"); got != 17 {
		t.Errorf("a is %d", got)
	}
	if got := b.word(`b x external q"`); got != 18 {
		t.Errorf("b is %d", got)
	}
	if _, words := find(b.read(), "h x external"); words[5] != uint64(3*len(text)) {
		t.Errorf("%d observations, want %d", words[5], 3*len(text))
	}
	if got := b.word(fmt.Sprintf("external_lines %d", os.Getuid())); got != uint64(3*len(text)) {
		t.Errorf("%d lines, want %d", got, 3*len(text))
	}
}

func TestReplies(t *testing.T) {
	b := serve(t, Options{})
	replies := b.push("a counter:1\nnonsense\na gauge:1\n\n# comment\nb counter:x\nc counter:12")
	lines := strings.SplitAfter(replies, "\n")
	for i, want := range []string{"error line 2: no value", "error line 3: metric a is a counter", "error line 6: counter:\"x\"", "error line 7: the connection ended"} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("reply %d is %q, want %q", i, lines[i], want)
		}
	}
	if len(lines) != 5 || lines[4] != "" {
		t.Errorf("replies %q", replies)
	}
	if s, _ := find(b.read(), "c external"); s != nil {
		t.Error("half a number was taken")
	}
	for why, want := range map[reason]uint64{syntax: 1, otherKind: 1, badNumber: 1, unfinished: 1, badName: 0} {
		if got := b.word("external_dropped " + reasonNames[why]); got != want {
			t.Errorf("%d dropped for %s, want %d", got, reasonNames[why], want)
		}
	}
	if b.frame.Lost != 4 {
		t.Errorf("%d lost, want 4", b.frame.Lost)
	}
}

func TestLongLines(t *testing.T) {
	b := serve(t, Options{MaxLine: 40_000})
	long := "h observe:" + strings.Repeat("7 ", 20_000) // 40,010 bytes
	fits := long[:40_000]
	replies := b.push(fits + "\n" + long + "\n" + strings.Repeat("x", 300_000) + "\na counter:1\n" + strings.Repeat("y", 50_000))
	if strings.Count(replies, "longer than 40000") != 3 || !strings.Contains(replies, "line 2:") || !strings.Contains(replies, "line 3:") || !strings.Contains(replies, "line 5:") {
		t.Errorf("replies %q", replies)
	}
	if got := b.word("a external"); got != 1 {
		t.Errorf("the line after the long one says %d", got)
	}
	if _, words := find(b.read(), "h external"); words[7] != 19_995 {
		t.Errorf("%d observations, want 19995", words[7])
	}
	if got := b.word("external_dropped line_length"); got != 3 {
		t.Errorf("%d dropped, want 3", got)
	}
}

func TestTooManyLines(t *testing.T) {
	b := serveBy(t, Options{LinesPerSecond: 100}, func() int64 { return 1e9 }) // no time passes
	replies := b.push(strings.Repeat("a counter:+1\n", 1009))
	if got := b.word("a external"); got != 100 {
		t.Errorf("%d lines taken, want 100", got)
	}
	if got := b.word("external_dropped line_rate"); got != 909 {
		t.Errorf("%d dropped, want 909", got)
	}
	if n := strings.Count(replies, "too many lines"); n == 0 || n > maxReplies {
		t.Errorf("%d replies", n)
	}
}

// TestAClientThatDoesNotRead sends nonsense, whose replies fill the socket,
// and then something good.
func TestAClientThatDoesNotRead(t *testing.T) {
	var now atomic.Int64 // a second more each time it is asked: every line is worth a reply
	b := serveBy(t, Options{TTL: 1e6 * time.Second}, func() int64 { return now.Add(1e9) })
	c := b.dial()
	const n = 20_011
	if _, err := io.WriteString(c, strings.Repeat("nonsense\n", n)+"a counter:3\n"); err != nil {
		t.Fatal(err)
	}
	replies := finish(t, c)
	if got := strings.Count(replies, "\n"); got == n || got != strings.Count(replies, "error line ") {
		t.Errorf("%d replies to %d lines fit into a socket", got, n)
	}
	if got := b.word("external_dropped syntax"); got != n {
		t.Errorf("%d dropped, want %d", got, n)
	}
	if got := b.word("a external"); got != 3 {
		t.Errorf("what came after nonsense is %d", got)
	}
}

func TestClients(t *testing.T) {
	const n, lines = 50, 211
	b := serve(t, Options{MaxClients: n, LinesPerSecond: 3 * n * lines}) // they are one process
	idle := b.dial()                                                     // says nothing, ever
	var all sync.WaitGroup
	for i := range n - 1 {
		c := b.dial()
		all.Go(func() {
			for range lines {
				if _, err := fmt.Fprintf(c, "sum counter:+3\nof{client=\"%d\"} counter:+1\nh observe:%d\n", i, i); err != nil {
					t.Error(err)
					return
				}
			}
			if replies := finish(t, c); replies != "" {
				t.Error(replies)
			}
		})
	}
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() { // the tick goes on meanwhile
		var f metric.Frame
		for {
			select {
			case <-stop:
				return
			default:
				if err := b.Read(&f); err != nil {
					t.Error(err)
				}
				if err := b.build(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	all.Wait()
	close(stop)
	reader.Wait()
	if got := b.word("sum external"); got != 3*(n-1)*lines {
		t.Errorf("the sum is %d, want %d", got, 3*(n-1)*lines)
	}
	for i := range n - 1 {
		if got := b.word(fmt.Sprintf("of %d external", i)); got != lines {
			t.Errorf("client %d has %d", i, got)
		}
	}
	if replies := finish(t, idle); replies != "" {
		t.Error(replies)
	}
}

func TestTooManyClients(t *testing.T) {
	b := serve(t, Options{MaxClients: 2})
	first := b.dial()
	b.dial()
	b.push("") // refused, as the two before it are admitted in order
	if got := b.word("external_dropped clients"); got != 1 {
		t.Errorf("%d refused, want 1", got)
	}
	if replies := b.push(""); !strings.HasPrefix(replies, "error line 0: there are 2 connections") {
		t.Errorf("reply %q", replies)
	}
	if got := b.word("external_clients"); got != 2 {
		t.Errorf("%d clients, want 2", got)
	}
	finish(t, first)
	if replies := b.push("a counter:1\n"); replies != "" {
		t.Errorf("there is room again, and the reply %q", replies)
	}
}

func TestRightsOfTheSocket(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	b := serve(t, Options{Group: "1009"})
	var st unix.Stat_t
	if err := unix.Stat(b.options.Path, &st); err != nil || st.Mode != unix.S_IFSOCK|0o660 || st.Gid != 1009 {
		t.Errorf("mode %o of group %d, %v; want 0660 of 1009", st.Mode, st.Gid, err)
	}
	if _, err := New(Options{Path: filepath.Join(t.TempDir(), "s"), Group: "no such group"}); err == nil {
		t.Error("a group that is not there is accepted")
	}
}

func TestAStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Path: path}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("while another listens: %v", err)
	}
	old.SetUnlinkOnClose(false)
	old.Close()
	s, err := New(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	// Another takes the path: it is not this one's to remove.
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := New(Options{Path: path}); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("over a file: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
		t.Errorf("the file is %q, %v", text, err)
	}
}

func TestTheWholeSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	samplers := Samplers(Options{Path: path, TTL: time.Hour})
	opened, err := samplers[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Source: opened.(*Source), t: t}
	if replies := b.push("a counter:7\n"); replies != "" {
		t.Error(replies)
	}
	c := b.dial() // stays
	deadline := time.Now().Add(time.Minute)
	for s, words := find(&b.frame, "a external"); s == nil || words[0] != 7; s, words = find(&b.frame, "a external") {
		if time.Now().After(deadline) {
			t.Fatal("the series is not published")
		}
		if err := b.Read(&b.frame); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // the schema is made elsewhere, which nothing tells
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := io.ReadAll(c); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}
