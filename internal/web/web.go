// SPDX-License-Identifier: Apache-2.0

// Package web serves the page and puts the HTTP interfaces together.
package web

import (
	"net/http"
	"time"
)

// Mode says what the page shows.
type Mode string

// The modes.
const (
	Live Mode = "live"
	File Mode = "file"
)

// Page is what the page must know.
type Page struct {
	Mode                         Mode
	Title, Host, Kernel, Version string
	First, Last                  int64
	Interval                     time.Duration
}

// Options are the parts.
type Options struct {
	Page                         func() Page
	API, Metrics, Stream, Status http.Handler
	Listen                       string
}

// New puts the parts together.
func New(o Options) http.Handler {
	mux := http.NewServeMux()
	for path, h := range map[string]http.Handler{"/api/v1/": o.API, "/metrics": o.Metrics, "/stream": o.Stream, "/status": o.Status} {
		if h != nil {
			mux.Handle(path, h)
		}
	}
	return mux
}
