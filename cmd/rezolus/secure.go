// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"

	"github.com/prometheus/exporter-toolkit/web"
)

// secured is a server with TLS and passwords as a web configuration file of
// Prometheus's exporters says (exporter-toolkit, docs/web-configuration.md),
// which is read again as it changes. Without a file it is a plain server.
type secured struct {
	*http.Server
	file string
	tls  bool
}

// withTLS finds the section of the file that turns TLS on.
var withTLS = regexp.MustCompile(`(?m)^tls_server_config\s*:`)

// secure checks the file. name is the flag or the key that names it.
func secure(server *http.Server, name, file string) (*secured, error) {
	s := &secured{Server: server, file: file}
	if file == "" {
		return s, nil
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = web.Validate(file)
	}
	if err != nil {
		return nil, hint(usage{fmt.Errorf("%s: %w", name, err)}, "SECURITY.md has an example")
	}
	s.tls = withTLS.Match(text)
	return s, nil
}

// scheme is how the server's URL begins.
func (s *secured) scheme() string {
	if s.tls {
		return "https"
	}
	return "http"
}

// Serve serves, and says what is wrong with the file once it runs.
func (s *secured) Serve(l net.Listener) error {
	if s.file == "" {
		return s.Server.Serve(l)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return web.Serve(l, s.Server, &web.FlagConfig{WebConfigFile: &s.file}, log)
}
