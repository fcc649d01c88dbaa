// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"compress/gzip"
	"context"
	"net/http"
	"strings"
	"sync"

	"rezolus/internal/metric"
)

// Handler serves what latest gives, in the format and with the compression the
// client accepts.
func Handler(latest func(context.Context) (*metric.Snapshot, error)) http.Handler {
	var mu sync.Mutex // of the writer and the compressor
	writer := NewWriter()
	compressor := gzip.NewWriter(nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := latest(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		format := Negotiate(r.Header.Get("Accept"))
		w.Header().Set("Content-Type", format.ContentType())
		w.Header().Set("Vary", "Accept, Accept-Encoding")
		mu.Lock()
		defer mu.Unlock()
		text := writer.Write(s, format)
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			_, _ = w.Write(text) // the client went away: nobody to tell
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		compressor.Reset(w)
		_, _ = compressor.Write(text)
		_ = compressor.Close()
	})
}
