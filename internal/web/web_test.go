// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func handler(listen string) http.Handler {
	return New(Options{Page: func() Page { return Page{Mode: Live, Interval: 1e9, Last: 5e6} }, Listen: listen,
		API: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("api")) })})
}

func TestTheDoor(t *testing.T) {
	f := func(listen, method, host, path string, want int) {
		t.Helper()
		r := httptest.NewRequest(method, path, nil)
		r.Host = host
		w := httptest.NewRecorder()
		handler(listen).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s %s at %s, listening on %s: %d, want %d", method, path, host, listen, w.Code, want)
		}
	}
	const here = "127.0.0.1:4241"
	f(here, "GET", here, "/", 200)
	f(here, "GET", "localhost:4241", "/", 200)
	f(here, "GET", "[::1]:4241", "/api/v1/query", 200)
	f(here, "POST", "127.0.0.9", "/api/v1/query", 200)
	f(here, "GET", "evil.example:4241", "/", http.StatusMisdirectedRequest)
	f(here, "GET", "127.0.0.1.evil.example", "/metrics", http.StatusMisdirectedRequest)
	f(here, "DELETE", here, "/", http.StatusMethodNotAllowed)
	f(here, "POST", here, "/", http.StatusMethodNotAllowed)
	f(here, "GET", here, "/nothing", 404)
	f(here, "GET", here, "/metrics", 404) // a file has none
	f("0.0.0.0:4241", "GET", "db1.example:4241", "/", 200)
	f(":4241", "GET", "db1.example:4241", "/", 200)
	f("localhost:4241", "GET", "evil.example", "/", http.StatusMisdirectedRequest)
}

func TestAssets(t *testing.T) {
	r := httptest.NewRequest("GET", "/page.js", nil)
	r.Host = "localhost"
	r.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	h := handler("127.0.0.1:0")
	h.ServeHTTP(w, r)
	if w.Code != 200 || w.Header().Get("Content-Encoding") != "gzip" || !strings.Contains(w.Header().Get("Content-Type"), "javascript") {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	if csp := w.Header().Get("Content-Security-Policy"); strings.Contains(csp, "unsafe") || !strings.Contains(csp, "default-src 'none'") {
		t.Errorf("policy %q", csp)
	}
	r.Header.Set("If-None-Match", w.Header().Get("ETag"))
	w = httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("with its own tag: %d with %d bytes", w.Code, w.Body.Len())
	}
}

func TestPageInfo(t *testing.T) {
	r := httptest.NewRequest("GET", "/api/page", nil)
	r.Host = "localhost"
	w := httptest.NewRecorder()
	handler("127.0.0.1:0").ServeHTTP(w, r)
	want := `{"first":0,"host":"","interval":1000,"kernel":"","last":5,"mode":"live","title":"","version":""}` + "\n"
	if w.Body.String() != want {
		t.Errorf("%s, want %s", w.Body, want)
	}
}

func TestTheBundleIsWhatItsSourcesMake(t *testing.T) {
	cmd := exec.Command("scripts/bundle.sh", "--check")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
