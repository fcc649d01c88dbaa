// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// accept asks for protocol buffers first, the only form that has native
// histograms. Of the text formats the older is better: its counters have one
// name, and its histograms no lines that say when they were created.
const accept = protobufType + ";proto=" + protobufMessage + ";encoding=delimited;q=1," +
	"text/plain;version=0.0.4;q=0.8,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"

const (
	protobufType    = "application/vnd.google.protobuf"
	protobufMessage = "io.prometheus.client.MetricFamily"
)

// web fetches over HTTP.
type web struct {
	client http.Client
	url    string
	accept string
	text   bool // of Prometheus, not JSON
	binary bool // so was the last answer: protocol buffers, not text
	gzip   gzip.Reader
}

func newWeb(u *url.URL, e Endpoint) *web {
	w := &web{accept: accept, text: true}
	to := *u
	if scheme, ok := strings.CutSuffix(u.Scheme, schemeJSON); ok {
		to.Scheme, w.accept, w.text = scheme, "application/json", false
	}
	w.url = to.String()
	// Nothing but the request's context limits the time, and no proxy of the
	// environment comes between: endpoints are near.
	if w.client.Transport = e.Transport; e.Transport == nil {
		w.client.Transport = &http.Transport{DialContext: new(net.Dialer).DialContext, DisableCompression: true,
			MaxIdleConnsPerHost: 1, MaxResponseHeaderBytes: 64 << 10}
	}
	return w
}

var (
	errTooLarge  = errors.New("the answer is too large")
	errForm      = errors.New("the answer has protocol buffers of another kind than asked for")
	errTruncated = errors.New("the answer has no # EOF: it is cut off")
)

// statusError is an answer that is none.
type statusError int

func (s statusError) Error() string {
	return fmt.Sprintf("the answer is %d %s", int(s), http.StatusText(int(s)))
}

// fetch reads the answer into buf, or more memory if that is too small.
func (w *web) fetch(ctx context.Context, buf []byte, limit int) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url, nil)
	if err != nil {
		return buf, err
	}
	request.Header.Set("Accept", w.accept)
	request.Header.Set("Accept-Encoding", "gzip") // DisableCompression: we unpack it ourselves, within limit
	request.Header.Set("User-Agent", "rezolus")
	answer, err := w.client.Do(request)
	if err != nil {
		return buf, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return buf, statusError(answer.StatusCode)
	}
	kind, parameters, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if w.binary = w.text && kind == protobufType; w.binary && (parameters["encoding"] != "delimited" || parameters["proto"] != protobufMessage) {
		return buf, errForm
	}
	var from io.Reader = answer.Body
	if strings.EqualFold(answer.Header.Get("Content-Encoding"), "gzip") {
		if err := w.gzip.Reset(answer.Body); err != nil {
			return buf, fmt.Errorf("unpack the answer: %w", err)
		}
		from = &w.gzip
	}
	if buf, err = readAll(from, buf, limit); err != nil {
		return buf, err
	}
	if w.text && kind == "application/openmetrics-text" &&
		!strings.HasSuffix(strings.TrimSuffix(string(buf[max(0, len(buf)-len(eof)-1):]), "\n"), eof) {
		return buf, errTruncated
	}
	return buf, nil
}

func (w *web) close() { w.client.CloseIdleConnections() }

func readAll(from io.Reader, buf []byte, limit int) ([]byte, error) {
	for {
		var err error
		if buf, err = grow(buf, limit); err != nil {
			return buf, err
		}
		n, err := from.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
}

// grow makes room behind buf, for limit bytes and one in all: who fills that
// has more than limit.
func grow(buf []byte, limit int) ([]byte, error) {
	if len(buf) > limit {
		return buf, fmt.Errorf("%w: more than %d bytes", errTooLarge, limit)
	}
	if len(buf) < cap(buf) {
		return buf, nil
	}
	bigger := make([]byte, len(buf), min(max(64<<10, 2*cap(buf)), limit+1))
	copy(bigger, buf)
	return bigger, nil
}
