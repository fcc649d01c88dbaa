// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"rezolus/internal/follow"
)

// credentials sends requests with what an access has in its files, as they are
// at the time: who follows an agent for months sees its passwords and
// certificates change, and the server reads its own again, too.
type credentials struct {
	patience time.Duration

	mu        sync.Mutex
	access    access
	read      string // which files the access is of; empty: they are to be read again
	transport http.RoundTripper
}

// newCredentials begins with an access that is understood.
func newCredentials(a access, patience time.Duration) *credentials {
	c := &credentials{patience: patience}
	c.take(a, a.files())
	return c
}

// take makes a transport of an access; its connections are their own.
func (c *credentials) take(a access, files string) {
	c.access, c.read, c.transport = a, files, follow.NewClient(a.tls, c.patience).Transport
}

// files tells which files an access has, by all that changes with them.
func (a *access) files() string {
	var all strings.Builder
	all.WriteString("as of ") // never empty
	paths := []string{a.CA, a.Cert, a.Key, a.PasswordFile}
	for _, h := range a.Headers {
		if path, ok := strings.CutPrefix(h, "@"); ok {
			paths = append(paths, path)
		}
	}
	for _, path := range paths {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			all.WriteString("none,")
			continue
		}
		inode := uint64(0)
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			inode = st.Ino
		}
		fmt.Fprintf(&all, "%d %d %d,", inode, info.Size(), info.ModTime().UnixNano())
	}
	return all.String()
}

// current is how the next request is sent. Files that are not what they should
// be, because somebody is writing them perhaps, are tried again with the next;
// until then it is what it was.
func (c *credentials) current() (http.RoundTripper, http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if files := c.access.files(); files != c.read {
		next := c.access
		if next.understand() == nil {
			closeIdle(c.transport)
			c.take(next, files)
		}
	}
	return c.transport, c.access.header
}

// RoundTrip implements http.RoundTripper. Whoever is refused has the files read
// again before the next request, whatever the times of their changes say.
func (c *credentials) RoundTrip(q *http.Request) (*http.Response, error) {
	transport, header := c.current()
	if len(header) > 0 {
		q = q.Clone(q.Context())
		for key, values := range header {
			q.Header[key] = values
		}
	}
	response, err := transport.RoundTrip(q)
	if err != nil || response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.read = ""
	}
	return response, err
}

// CloseIdleConnections closes those that wait, for http.Client.
func (c *credentials) CloseIdleConnections() {
	c.mu.Lock()
	defer c.mu.Unlock()
	closeIdle(c.transport)
}

func closeIdle(t http.RoundTripper) { (&http.Client{Transport: t}).CloseIdleConnections() }
