// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"rezolus/internal/follow"
	"rezolus/internal/gather"
	"rezolus/internal/source/scrape"
)

// access is how endpoints are reached that do not take everybody. What is
// secret in it is never said.
type access struct {
	ca, cert, key string
	insecure      bool
	headers       []string

	tls    *tls.Config
	header http.Header
}

func (a *access) flags(f *pflag.FlagSet) {
	f.StringVar(&a.ca, "ca", "", "`file` of the certificates that sign the endpoints', instead of the system's")
	f.StringVar(&a.cert, "cert", "", "`file` of our certificate")
	f.StringVar(&a.key, "key", "", "`file` of its key")
	f.BoolVar(&a.insecure, "insecure", false, "take any certificate")
	f.StringArrayVar(&a.headers, "header", nil, "`'Name: value'` of every request, may be repeated; @file reads it from there")
}

func (a *access) understand() error {
	a.header = http.Header{}
	for _, h := range a.headers {
		if path, ok := strings.CutPrefix(h, "@"); ok {
			text, err := os.ReadFile(path)
			if err != nil {
				return usage{fmt.Errorf("--header: %w", err)}
			}
			h = strings.TrimSpace(string(text))
		}
		name, value, ok := strings.Cut(h, ":")
		if !ok || name == "" || strings.ContainsAny(h, "\r\n") {
			return usage{errors.New("--header: want 'Name: value'")}
		}
		a.header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if a.ca == "" && a.cert == "" && a.key == "" && !a.insecure {
		return nil
	}
	a.tls = &tls.Config{InsecureSkipVerify: a.insecure, MinVersion: tls.VersionTLS12}
	if a.ca != "" {
		text, err := os.ReadFile(a.ca)
		if err != nil {
			return usage{fmt.Errorf("--ca: %w", err)}
		}
		if a.tls.RootCAs = x509.NewCertPool(); !a.tls.RootCAs.AppendCertsFromPEM(text) {
			return usage{fmt.Errorf("--ca %s: there is no certificate in it; want PEM", a.ca)}
		}
	}
	if a.cert != "" || a.key != "" {
		pair, err := tls.LoadX509KeyPair(a.cert, a.key)
		if err != nil {
			return usage{fmt.Errorf("--cert and --key: %w", err)}
		}
		a.tls.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// options are how the place is followed as an agent.
func (f *recordFlags) options(t *place) follow.Options {
	return follow.Options{URL: t.url, Interval: f.every, Meta: f.metaOf(t), Client: follow.NewClient(f.access.tls),
		Header: f.access.header, Compress: !loopback(t.url)}
}

// metaOf is what stands in a recording of the place alone.
func (f *recordFlags) metaOf(t *place) map[string]string {
	meta := map[string]string{}
	for key, value := range map[string]string{"source": t.source, "role": t.role} {
		if value != "" {
			meta[key] = value
		}
	}
	for key, value := range f.meta {
		meta[key] = value
	}
	return meta
}

// endpoint is the place among others.
func (f *recordFlags) endpoint(t *place) gather.Endpoint {
	e := gather.Endpoint{Name: t.name, Source: t.source, Role: t.role}
	if t.protocol != speaksPrometheus {
		o := f.options(t)
		o.Meta = nil
		e.Agent = &o
	}
	if t.protocol != speaksRezolus {
		u := *t.url
		if u.Path == "" || u.Path == "/" {
			u.Path = "/metrics"
		}
		e.Scrape = &scrape.Endpoint{URL: u.String(), TLS: f.access.tls, Header: f.access.header}
	}
	return e
}

// loopback reports whether a URL leads to this machine, where packing is waste.
func loopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// cannotFollow explains why an agent cannot be followed.
func cannotFollow(t *place, err error) error {
	var answer *follow.StatusError
	if errors.As(err, &answer) {
		switch answer.Code {
		case http.StatusBadRequest:
			return usage{err}
		case http.StatusUnauthorized, http.StatusForbidden:
			return hint(err, "put user:password@ into the URL, or a token into --header")
		}
		return err
	}
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return hint(fmt.Errorf("no agent at %s: %w", t.url.Redacted(), err), "name the certificate that signs its own with --ca")
	}
	return unreachable(t.url.Redacted(), err)
}
