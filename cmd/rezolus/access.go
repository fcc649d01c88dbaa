// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"rezolus/internal/config"
	"rezolus/internal/follow"
)

// access is how every command reaches an agent that does not take everybody:
// by flags, or by the keys of a configuration. What is secret in it is never
// said. Its files are read again as they change (credentials).
type access struct {
	config.Access
	section string          // of the configuration that it is from; empty: flags
	flagged map[string]bool // flags that were given nevertheless

	tls    *tls.Config // nil: the system's
	header http.Header // of every request
}

func (a *access) flags(f *pflag.FlagSet) {
	f.StringVar(&a.CA, "ca", "", "`file` of the certificates that sign the agent's, instead of the system's")
	f.StringVar(&a.Cert, "cert", "", "`file` of our certificate")
	f.StringVar(&a.Key, "key", "", "`file` of its key")
	f.BoolVar(&a.Insecure, "insecure", false, "take any certificate")
	f.StringVar(&a.Username, "username", "", "`name` that the agent knows")
	f.StringVar(&a.PasswordFile, "password-file", "", "`file` of its password")
	f.StringArrayVar(&a.Headers, "header", nil, "`'Name: value'` of every request, may be repeated; @file reads it from there")
}

// fill takes the keys of a section of a configuration for the flags that were
// not given.
func (a *access) fill(section string, from config.Access, said func(flag string) bool) {
	a.section, a.flagged = section, map[string]bool{}
	for flag, take := range map[string]func(){
		"ca": func() { a.CA = from.CA }, "cert": func() { a.Cert = from.Cert }, "key": func() { a.Key = from.Key },
		"insecure": func() { a.Insecure = from.Insecure }, "header": func() { a.Headers = from.Headers },
		"username": func() { a.Username = from.Username }, "password-file": func() { a.PasswordFile = from.PasswordFile },
	} {
		if a.flagged[flag] = said(flag); !a.flagged[flag] {
			take()
		}
	}
}

// name is what the user wrote to set something: a flag, or a key.
func (a *access) name(flag string) string {
	if a.section == "" || a.flagged[flag] {
		return "--" + flag
	}
	if flag == "header" {
		flag = "headers"
	}
	return a.section + "." + strings.ReplaceAll(flag, "-", "_")
}

// understand reads the files, before anybody is asked.
func (a *access) understand() error {
	a.tls, a.header = nil, http.Header{}
	for _, h := range a.Headers {
		if path, ok := strings.CutPrefix(h, "@"); ok {
			text, err := os.ReadFile(path)
			if err != nil {
				return usage{fmt.Errorf("%s: %w", a.name("header"), err)}
			}
			h = strings.TrimSpace(string(text))
		}
		name, value, ok := strings.Cut(h, ":")
		if !ok || name == "" || strings.ContainsAny(h, "\r\n") {
			return usage{fmt.Errorf("%s: want 'Name: value'", a.name("header"))}
		}
		a.header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if err := a.password(); err != nil {
		return err
	}
	return a.certificates()
}

// password makes a header of the name and the password.
func (a *access) password() error {
	if a.Username == "" && a.PasswordFile == "" {
		return nil
	}
	if a.Username == "" || a.PasswordFile == "" || strings.Contains(a.Username, ":") {
		return usage{fmt.Errorf("want both %s, without a colon, and %s", a.name("username"), a.name("password-file"))}
	}
	text, err := os.ReadFile(a.PasswordFile)
	if err != nil {
		return usage{fmt.Errorf("%s: %w", a.name("password-file"), err)}
	}
	secret := strings.TrimRight(string(text), "\r\n")
	if secret == "" {
		return usage{fmt.Errorf("%s %s: there is no password in it", a.name("password-file"), a.PasswordFile)}
	}
	a.header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(a.Username+":"+secret)))
	return nil
}

func (a *access) certificates() error {
	if a.CA == "" && a.Cert == "" && a.Key == "" && !a.Insecure {
		return nil
	}
	a.tls = &tls.Config{InsecureSkipVerify: a.Insecure, MinVersion: tls.VersionTLS12}
	if a.CA != "" {
		text, err := os.ReadFile(a.CA)
		if err != nil {
			return usage{fmt.Errorf("%s: %w", a.name("ca"), err)}
		}
		if a.tls.RootCAs = x509.NewCertPool(); !a.tls.RootCAs.AppendCertsFromPEM(text) {
			return usage{fmt.Errorf("%s %s: there is no certificate in it; want PEM", a.name("ca"), a.CA)}
		}
	}
	if a.Cert != "" || a.Key != "" {
		pair, err := tls.LoadX509KeyPair(a.Cert, a.Key)
		if err != nil {
			return usage{fmt.Errorf("%s and %s: %w", a.name("cert"), a.name("key"), err)}
		}
		a.tls.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// client makes the client of every request. patience is how long an answer may
// take to begin; it may come for ever.
func (a *access) client(patience time.Duration) *http.Client {
	return &http.Client{Transport: newCredentials(*a, patience)}
}

// request asks an agent and is the body of its answer.
func (a *access) request(ctx context.Context, patience time.Duration, method, address, path string, values url.Values, body io.Reader) (io.ReadCloser, error) {
	u, err := endpoint(address, path, values)
	if err != nil {
		return nil, err
	}
	q, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return nil, err
	}
	where := withoutPassword(address)
	response, err := a.client(patience).Do(q)
	if err != nil {
		var outer *url.Error
		if errors.As(err, &outer) { // it repeats the address
			err = outer.Err
		}
		return nil, a.explain(where, err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1000)) // what there is
	return nil, a.explain(where, &follow.StatusError{Where: where, Code: response.StatusCode,
		Text: strings.TrimSpace(response.Status + ": " + strings.TrimSpace(string(text)))})
}

// endpoint is the agent's URL with a path.
func endpoint(address, path string, values url.Values) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", hint(usage{fmt.Errorf("%q is not the URL of an agent", withoutPassword(address))}, "it is like %s", defaultURL)
	}
	u = u.JoinPath(path)
	u.RawQuery = values.Encode()
	return u.String(), nil
}

var userinfo = regexp.MustCompile(`//.*@`)

// withoutPassword is what can be said of an address, which may be none.
func withoutPassword(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Redacted()
	}
	return userinfo.ReplaceAllString(address, "//xxxxx@")
}

// explain says why an agent does not answer, or not us, and what to do about
// it. where is its address without a password.
func (a *access) explain(where string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err // it was not asked to the end
	}
	var answer *follow.StatusError
	if errors.As(err, &answer) {
		return a.explainStatus(answer, err)
	}
	err = fmt.Errorf("no agent at %s: %w", where, err)
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var other x509.HostnameError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return hint(err, "start one with: sudo rezolus")
	case errors.As(err, &unknown):
		return hint(err, "name the certificate that signs the agent's with %s", a.name("ca"))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return hint(err, "renew the agent's certificate (cert_file in its web_config), or set the clock right")
	case errors.As(err, &other):
		return hint(err, "use a name or an address that the agent's certificate is for")
	case errors.Is(err, http.ErrSchemeMismatch):
		return hint(err, "the agent has no TLS: begin its URL with http://")
	case strings.Contains(err.Error(), "remote error: tls: "): // its type is not exported
		return hint(err, "give a certificate that the agent accepts, with %s and %s", a.name("cert"), a.name("key"))
	}
	return err
}

// explainStatus is explain for an answer.
func (a *access) explainStatus(answer *follow.StatusError, err error) error {
	switch answer.Code {
	case http.StatusBadRequest:
		if strings.Contains(answer.Text, "HTTP request to an HTTPS server") {
			return hint(err, "the agent has TLS: begin its URL with https://")
		}
		return usage{err}
	case http.StatusUnauthorized, http.StatusForbidden:
		if a.header.Get("Authorization") != "" || strings.Contains(answer.Where, "@") {
			return hint(err, "the agent does not know this user, or has another password: basic_auth_users in its web_config")
		}
		return hint(err, "give %s and %s, or a token in a file with %s", a.name("username"), a.name("password-file"), a.name("header"))
	}
	return err
}
