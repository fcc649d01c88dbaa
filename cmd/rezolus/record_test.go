// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/crypto/bcrypt"

	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// prometheus serves an endpoint to scrape, until the script ends: prometheus
// VARIABLE. It has a counter, a ratio and a histogram.
func prometheus(ts *testscript.TestScript, neg bool, args []string) {
	var scrapes atomic.Uint64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, "# TYPE requests_total counter\nrequests_total %d\n# TYPE hit_ratio gauge\nhit_ratio 0.375\n"+
			"# TYPE wait_seconds histogram\nwait_seconds_bucket{le=\"0.5\"} 3\nwait_seconds_bucket{le=\"+Inf\"} 4\nwait_seconds_sum 2.5\nwait_seconds_count 4\n",
			scrapes.Add(1))
	}))
	ts.Defer(server.Close)
	ts.Setenv(args[0], server.URL)
}

// hung listens and never answers, until the script ends: hung VARIABLE.
func hung(ts *testscript.TestScript, neg bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	ts.Setenv(args[0], "http://"+l.Addr().String())
}

// another writes the configuration of one more agent: another FILE VARIABLE.
// It reads little, and the variable is its URL.
func another(ts *testscript.TestScript, neg bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	defer l.Close()
	ts.Setenv(args[1], "http://"+l.Addr().String())
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), fmt.Appendf(nil, "[general]\nlisten = %q\ninterval = \"100ms\"\n[hindsight]\nenabled = false\n"+
		"[defaults]\nenabled = false\n[samplers.cpu_usage]\nenabled = true\n[budget]\ncpu = \"100%%\"\nmemory = \"1GiB\"\n", l.Addr()), 0o644))
}

// webconfig writes a certificate for 127.0.0.1 and the files by which an agent
// uses it and asks for a password: webconfig USER PASSWORD.
func webconfig(ts *testscript.TestScript, neg bool, args []string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	ts.Check(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	hash, err := bcrypt.GenerateFromPassword([]byte(args[1]), bcrypt.MinCost)
	ts.Check(err)
	for name, text := range map[string][]byte{
		"cert.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		"key.pem":  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
		"web.yml":  fmt.Appendf(nil, "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\nbasic_auth_users:\n  %s: %s\n", args[0], hash),
	} {
		ts.Check(os.WriteFile(ts.MkAbs(name), text, 0o600))
	}
}

func TestProgressLine(t *testing.T) {
	got := progressLine(12400*time.Millisecond, 500*time.Millisecond, 1240, 50, 123_456, 6_000, 3)
	if want := "12s  1240 ticks  100.0/s  123 kB  12.0 kB/s  3 missed"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPlaces(t *testing.T) {
	for spec, want := range map[string]string{
		"http://h:1": "h:1", "http://h:1/metrics,source=a,role=b": "h:1 a b prometheus", "http://h:1/x": "h:1/x   prometheus",
		"http://h:1,protocol=prometheus": "h:1   prometheus", "https://me:secret@h": "h",
		"ftp://h": "error", "http://h,sauce=a": "error", "http://h,protocol=msgpack": "error",
	} {
		p, err := parsePlace(spec, true)
		got := "error"
		if err == nil {
			got = strings.TrimRight(p.name+" "+p.source+" "+p.role+" "+p.protocol, " ")
		}
		if got != want || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %q (%v), want %q", spec, got, err, want)
		}
	}
}

func TestSeparatePaths(t *testing.T) {
	for _, c := range []struct{ output, source, name, want string }{
		{"d/x.rzr", "a", "h:1", "d/x_a.rzr"}, {"x.parquet", "", "h:1/m", "x_h-1-m.parquet"}, {"x", "../a", "", "x_..-a"},
	} {
		if got := separatePath(c.output, &place{source: c.source, name: c.name}); got != c.want {
			t.Errorf("%v: %s", c, got)
		}
	}
}

// Told to end twice, the recorder ends at once; the rows are all there.
func TestASecondSignalLosesNothing(t *testing.T) {
	dir := t.TempDir()
	// An agent that gives ticks and whose goodbye takes for ever.
	stuck := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("bye") != "" {
			<-stuck
			return
		}
		w.Header().Set("Content-Type", "application/vnd.rezolus.recording")
		_, _ = w.Write(twoTicks(t)) // the recorder may be gone
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	defer close(stuck)
	path := dir + "/x.rzr"
	// testscript.Main has put it into PATH.
	cmd := exec.Command("rezolus", "record", "-i", "10ms", "--url", server.URL, "-o", path)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ticks := func() (n uint64) {
		if r, err := store.Open(osFS, path); err == nil {
			n = r.Info().Ticks
			r.Close()
		}
		return n
	}
	for began := time.Now(); ticks() < 2; time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("nothing was recorded: %s", &said)
		}
	}
	for range 2 {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // two that come at once are one (signal(7))
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(said.String(), "every tick is in "+path) || ticks() != 2 {
		t.Errorf("exit status %d, %d ticks: %s", code, ticks(), &said)
	}
}

// twoTicks are the bytes of a stream.
func twoTicks(t *testing.T) (b []byte) {
	schema, err := metric.NewSchema("one", []metric.Series{{Desc: &metric.Desc{Name: "one", Kind: metric.Counter}}})
	if err != nil {
		t.Error(err)
		return nil
	}
	e := store.NewEncoder(store.EncoderOptions{Interval: 10 * time.Millisecond})
	for n := range int64(2) {
		b, err = e.Append(b, &metric.Snapshot{Run: &metric.Run{ID: [16]byte{1}}, Seq: uint64(n) + 1, Wall: 1e18 + n*1e7, Mono: 1e9 + n*1e7, Interval: 1e7,
			Frames: []metric.Frame{{Schema: schema, Values: []uint64{uint64(n)}}}})
		if err != nil {
			t.Error(err)
		}
	}
	return b
}
