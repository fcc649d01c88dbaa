// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"compress/gzip"
	"context"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"rezolus/internal/metric"
)

// Handler serves what latest gives, in the format and with the compression the
// client accepts. A client that reads slowly delays no other.
func Handler(latest func(context.Context) (*metric.Snapshot, error)) http.Handler {
	var mu sync.Mutex // of the writer
	writer := NewWriter()
	replies := sync.Pool{New: func() any { return new(reply) }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := latest(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		format := Negotiate(r.Header.Get("Accept"))
		w.Header().Set("Content-Type", format.ContentType())
		w.Header().Set("Vary", "Accept, Accept-Encoding")
		p := replies.Get().(*reply)
		defer replies.Put(p)
		mu.Lock()
		p.text = writer.Append(p.text[:0], s, format)
		mu.Unlock()
		p.send(w, quality(r.Header.Get("Accept-Encoding"), "gzip") > 0)
	})
}

// reply is the memory of a reply under way.
type reply struct {
	text []byte
	gzip *gzip.Writer
}

// send ignores errors: the client went away, and nobody is there to tell.
func (p *reply) send(w http.ResponseWriter, compress bool) {
	if !compress {
		w.Header().Set("Content-Length", strconv.Itoa(len(p.text)))
		_, _ = w.Write(p.text)
		return
	}
	if p.gzip == nil {
		p.gzip, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // a level there is
	}
	w.Header().Set("Content-Encoding", "gzip")
	p.gzip.Reset(w)
	_, _ = p.gzip.Write(p.text)
	_ = p.gzip.Close()
}

// Negotiate chooses the format for a request's Accept header: protocol buffers
// for a client that likes them better than all else, as Prometheus does where it
// wants native histograms; OpenMetrics for one that names it and does not take
// Prometheus' text.
//
// Who takes both, as Prometheus does with OpenMetrics first, gets the text. It
// says all that OpenMetrics would, and only there a counter may keep its name.
func Negotiate(accept string) Format {
	if binary(accept) > max(quality(accept, "application/openmetrics-text"), quality(accept, "text/plain"), quality(accept, "text/*")) {
		return Protobuf
	}
	if quality(accept, "application/openmetrics-text") > 0 && max(quality(accept, "text/plain"), quality(accept, "text/*")) == 0 {
		return OpenMetrics
	}
	return Text
}

// binary is how much a header wants protocol buffers, of the kind there is.
func binary(accept string) float64 {
	best := 0.0
	for part := range strings.SplitSeq(accept, ",") {
		if _, parameters, err := mime.ParseMediaType(part); err == nil && parameters["proto"] == protobufMessage && parameters["encoding"] == "delimited" {
			best = max(best, quality(part, protobufType))
		}
	}
	return best
}

// quality is how much a header of preferences (RFC 9110, 12.4.2) wants a
// value, from 0 to 1.
func quality(header, value string) float64 {
	best := 0.0
	for part := range strings.SplitSeq(header, ",") {
		name, parameters, _ := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(name), value) {
			continue
		}
		q := 1.0
		for p := range strings.SplitSeq(parameters, ";") {
			if key, weight, _ := strings.Cut(strings.TrimSpace(p), "="); strings.EqualFold(key, "q") {
				q, _ = strconv.ParseFloat(weight, 64) // a bad one is 0
			}
		}
		best = max(best, q)
	}
	return best
}
