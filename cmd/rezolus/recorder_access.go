// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/url"
	"time"

	"rezolus/internal/follow"
	"rezolus/internal/gather"
	"rezolus/internal/source/scrape"
)

// followPatience is how long the answer to who follows may take to begin.
const followPatience = 10 * time.Second

// options are how the place is followed as an agent.
func (f *recordFlags) options(t *place) follow.Options {
	return follow.Options{URL: t.url, Interval: f.every, Meta: f.metaOf(t), Client: f.access.client(followPatience),
		Compress: !loopback(t.url)}
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
		e.Scrape = &scrape.Endpoint{URL: u.String(), Transport: newCredentials(f.access, 0)}
	}
	return e
}

// loopback reports whether a URL leads to this machine, where packing is waste.
func loopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
