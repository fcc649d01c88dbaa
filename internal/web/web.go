// SPDX-License-Identifier: Apache-2.0

// Package web serves the page, and puts the agent's HTTP interfaces together
// behind one door: a check of the host a request names, and of its method.
//
// The page asks only the interfaces that every other client has. This package
// measures and computes nothing.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"
)

//go:embed dist
var dist embed.FS

// Mode says what the page shows.
type Mode string

// The modes.
const (
	Live Mode = "live" // an agent, as it measures
	File Mode = "file" // a recording
)

// Page is what the page must know before it can ask.
type Page struct {
	Mode        Mode
	Title       string // of a recording: its name
	Host        string
	Kernel      string
	Version     string
	First, Last int64 // of the data, Unix nanoseconds
	Interval    time.Duration
	Clock       *Clock // nil: the data's time is everybody's
}

// Clock is the time of data that is not of now: of a recording that happens
// again.
type Clock struct {
	Now   int64   // Unix nanoseconds
	Speed float64 // how fast it goes; 0: it stands still
}

// Options are the parts. A handler that is nil is not there.
type Options struct {
	Page    func() Page
	API     http.Handler // under /api/v1/
	Metrics http.Handler
	Stream  http.Handler
	Status  http.Handler
	System  http.Handler // what the machine is made of, at /systeminfo
	// Others are further interfaces by their patterns, with the method.
	Others map[string]http.Handler
	// Listen is the address the server listens on. Requests must name it,
	// or a name of this machine's loopback.
	Listen string
}

// New returns the handler of everything.
func New(o Options) http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]http.Handler{"/api/v1/": o.API, "GET /metrics": o.Metrics, "GET /stream": o.Stream, "GET /status": o.Status, "GET /systeminfo": o.System} {
		if h == nil {
			h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Error(w, r.URL.Path+" is served by an agent, not for a file", http.StatusNotFound)
			})
		}
		mux.Handle(pattern, h)
	}
	for pattern, h := range o.Others {
		mux.Handle(pattern, h)
	}
	mux.Handle("GET /api/page", pageInfo(o.Page))
	for _, name := range []string{"index.html", "page.js", "page.css"} {
		pattern := "GET /" + name
		if name == "index.html" {
			pattern = "GET /{$}"
		}
		mux.Handle(pattern, asset(name))
	}
	return guard(o.Listen, mux)
}

// pageInfo serves /api/page. Times are in milliseconds, as a browser has them.
func pageInfo(page func() Page) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p := page()
		info := map[string]any{
			"mode": p.Mode, "title": p.Title, "host": p.Host, "kernel": p.Kernel, "version": p.Version,
			"first": p.First / 1e6, "last": p.Last / 1e6, "interval": float64(p.Interval) / 1e6,
		}
		if p.Clock != nil {
			info["clock"] = map[string]any{"now": p.Clock.Now / 1e6, "speed": p.Clock.Speed}
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(info) // the client went away: nobody to tell
	})
}

// asset serves a file of the page, compressed once for all.
func asset(name string) http.Handler {
	plain, err := dist.ReadFile(path.Join("dist", name))
	if err != nil {
		panic(err) // it is embedded
	}
	var compressed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	_, _ = z.Write(plain) // to memory
	_ = z.Close()
	sum := sha256.Sum256(plain)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	kind := mime.TypeByExtension(path.Ext(name))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", kind)
		h.Set("ETag", tag)
		h.Set("Cache-Control", "no-cache") // ask again, by the tag
		h.Set("Vary", "Accept-Encoding")
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		body := plain
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			body = compressed.Bytes()
		}
		_, _ = w.Write(body)
	})
}

// guard refuses requests that a page of another site had a browser make: DNS
// rebinding points a foreign name at this machine, but cannot change the name
// in the request. Where the agent listens to the world, whoever set that up
// chooses the names.
func guard(listen string, next http.Handler) http.Handler {
	host, _, _ := net.SplitHostPort(listen)
	world := host == ""
	if a, err := netip.ParseAddr(host); err == nil {
		world = !a.IsLoopback()
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !world && !known(r.Host, host) {
			http.Error(w, fmt.Sprintf("this server is not %q; use http://%s/", r.Host, listen), http.StatusMisdirectedRequest)
			return
		}
		if !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPost}, r.Method) {
			w.Header().Set("Allow", "GET, HEAD, POST")
			http.Error(w, "nothing here takes "+r.Method, http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// known tells whether a request's host is a name of the loopback, or the one
// that is listened on.
func known(host, listen string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	name = strings.Trim(name, "[]")
	if name == "localhost" || name == listen {
		return true
	}
	a, err := netip.ParseAddr(name)
	return err == nil && a.IsLoopback()
}
