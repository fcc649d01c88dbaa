// SPDX-License-Identifier: Apache-2.0

// Package scrape reads what other programs publish over the network: the
// protocol buffers and text formats of Prometheus and OpenMetrics, the stats of memcached and Pelikan,
// and the numbers of a JSON document. docs/external.md says what becomes of
// each.
//
// An endpoint is one source, so that one which hangs, fails or restarts
// touches no other. A scrape is taken as a whole or not at all: what does not
// parse to its end gives no frame. How endpoints fare is a source of its own
// (Health), which never waits.
package scrape

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Endpoint is one place to scrape. What is zero takes the default that stands
// beside it.
type Endpoint struct {
	// URL says where and how: http:// and https:// are Prometheus's formats
	// (or OpenMetrics), http+json:// and https+json:// a JSON document,
	// memcache://host:port the stats of memcached or Pelikan. A user and
	// password in it are sent as basic authentication.
	URL  string
	Name string // value of the label endpoint; host:port
	// Prefix stands before every name; "memcache_" for memcache, else none.
	Prefix   string
	Interval time.Duration // 10 s
	Timeout  time.Duration // of one scrape as a whole; 5 s, Interval if that is less
	// Counters are the names that only grow, of a JSON document, which does
	// not tell.
	Counters  []string
	MaxSeries int // 10,000; more are dropped and counted
	MaxBytes  int // of an answer, after decompression; 16 MiB
	// Transport sends every request over HTTP; nil: one of its own.
	Transport http.RoundTripper
}

// The schemes of Endpoint.URL.
const (
	schemeJSON     = "+json"
	schemeMemcache = "memcache"
)

func (e Endpoint) withDefaults() (Endpoint, *url.URL, error) {
	u, err := url.Parse(e.URL)
	if err != nil {
		var inner *url.Error
		if errors.As(err, &inner) { // which repeats the address, password and all
			err = inner.Err
		}
		return e, nil, fmt.Errorf("endpoint %s: the address is none: %w", e.Name, err)
	}
	switch u.Scheme {
	case "http", "https", "http" + schemeJSON, "https" + schemeJSON:
	case schemeMemcache:
		if u.Port() == "" {
			u.Host += ":11211"
		}
		if e.Prefix == "" {
			e.Prefix = "memcache_"
		}
	default:
		return e, nil, fmt.Errorf("endpoint %s: want an address with http://, https://, http+json://, https+json:// or memcache://, not %q",
			e.Name, u.Scheme)
	}
	if u.Hostname() == "" {
		return e, nil, fmt.Errorf("endpoint %s: the address %s names no host", e.Name, u.Redacted())
	}
	if e.Prefix != "" && mapName(e.Prefix) != e.Prefix {
		return e, nil, fmt.Errorf("endpoint %s: prefix %q: want lower-case letters, digits and _, a letter first", e.Name, e.Prefix)
	}
	if e.Name == "" {
		e.Name = u.Host
	}
	if e.Interval <= 0 {
		e.Interval = 10 * time.Second
	}
	if e.Timeout <= 0 {
		e.Timeout = min(5*time.Second, e.Interval)
	}
	if e.MaxSeries <= 0 {
		e.MaxSeries = 10_000
	}
	if e.MaxBytes <= 0 {
		e.MaxBytes = 16 << 20
	}
	return e, u, nil
}

// Check reports what is wrong with endpoints, together: a bad address, a name
// that two have.
func Check(endpoints []Endpoint) error {
	var errs []error
	var names []string
	for _, e := range endpoints {
		e, _, err := e.withDefaults()
		if err == nil && slices.Contains(names, e.Name) {
			err = fmt.Errorf("endpoint %s: there are two of that name", e.Name)
		}
		names = append(names, e.Name)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// mapName makes a metric's name of ours out of another's: lower case, with _
// for what we do not have in names. It is empty if nothing is left.
func mapName(name string) string {
	ok := len(name) > 0 && name[0] >= 'a' && name[0] <= 'z'
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_'
	}
	if ok {
		return name
	}
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, name)
	return strings.TrimLeft(name, "_0123456789")
}
