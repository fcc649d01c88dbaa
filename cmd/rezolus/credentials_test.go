// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"rezolus/internal/agent"
	"rezolus/internal/config"
	"rezolus/internal/follow"
	"rezolus/internal/metric"
)

// keyring is the files of a server and of who asks it.
type keyring struct {
	t   *testing.T
	dir string
	n   int64
}

func (k *keyring) path(name string) string { return filepath.Join(k.dir, name) }

// put replaces a file at once, as those who rotate secrets do.
func (k *keyring) put(name string, text []byte) {
	k.t.Helper()
	if err := errors.Join(os.WriteFile(k.path(name+".new"), text, 0o600), os.Rename(k.path(name+".new"), k.path(name))); err != nil {
		k.t.Fatal(err)
	}
}

// server gives it new certificates and another password, and returns what
// clients need.
func (k *keyring) server(password string) (ca, cert, key []byte) {
	k.t.Helper()
	k.n += 10
	authority, ca, _, err := (*authority)(nil).sign(signing(k.n))
	if err != nil {
		k.t.Fatal(err)
	}
	_, own, secret, err := authority.sign(template("server", k.n+1, time.Hour))
	if err != nil {
		k.t.Fatal(err)
	}
	_, cert, key, err = authority.sign(template("client", k.n+2, time.Hour))
	if err != nil {
		k.t.Fatal(err)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		k.t.Fatal(err)
	}
	k.put("server.pem", own)
	k.put("server.key", secret)
	k.put("clients.pem", ca)
	k.put("web.yml", fmt.Appendf(nil, "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"+
		"  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: clients.pem\nbasic_auth_users:\n  me: %s\n", hash))
	return ca, cert, key
}

// cutter is a listener whose connections can be cut.
type cutter struct {
	net.Listener
	mu   sync.Mutex
	open []net.Conn
}

func (c *cutter) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open = append(c.open, conn)
	}
	return conn, err
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		_ = conn.Close() // it may be closed already
	}
	c.open = nil
}

// heart is a source of nothing but ticks.
type heart struct{ schema *metric.Schema }

func (h *heart) Name() string { return "heart" }
func (h *heart) Close() error { return nil }
func (h *heart) Read(f *metric.Frame) error {
	f.Schema = h.schema
	f.Resize(h.schema.Words)
	return nil
}

// serveSecured runs an agent as a web configuration file says.
func serveSecured(t *testing.T, file string) *cutter {
	t.Helper()
	schema, err := metric.NewSchema("heart", []metric.Series{{Desc: &metric.Desc{Name: "beats", Kind: metric.Counter}}})
	if err != nil {
		t.Fatal(err)
	}
	a := agent.New(agent.Options{Run: &metric.Run{ID: [16]byte{1}}, Self: agent.Self{Off: true}})
	a.Add(&heart{schema}, agent.SourceOptions{})
	server, err := secure(&http.Server{Handler: a.StreamHandler(), ReadHeaderTimeout: time.Minute}, "web_config", file)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{Listener: l}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- a.Run(ctx) }()
	go func() {
		if err := server.Serve(c); !errors.Is(err, http.ErrServerClosed) {
			ended <- err
			return
		}
		ended <- nil
	}()
	t.Cleanup(func() {
		cancel()
		server.Close()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	return c
}

// followed is a follower that is watched.
type followed struct {
	t      *testing.T
	states chan error
	ticks  chan int64
	late   <-chan time.Time
}

// followSecured follows until the function is called.
func followSecured(t *testing.T, a access, address string) (f *followed, stop func()) {
	f = &followed{t: t, states: make(chan error, 1000), ticks: make(chan int64, 100_000), late: time.After(time.Minute)}
	ctx, cancel := context.WithCancel(t.Context())
	s := follow.Await(ctx, follow.Options{URL: &url.URL{Scheme: "https", Host: address}, Interval: 20 * time.Millisecond,
		Client: a.client(followPatience), State: func(err error) { f.states <- err }})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer s.Close()
		for {
			tick, err := s.Next()
			if err != nil {
				return
			}
			f.ticks <- tick.Wall
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(stop)
	return f, stop
}

// until waits for a state.
func (f *followed) until(what string, is func(err error) bool) {
	f.t.Helper()
	for {
		select {
		case err := <-f.states:
			if is(err) {
				return
			}
		case <-f.late:
			f.t.Fatalf("%s never came", what)
		}
	}
}

func (f *followed) refused(with string) {
	f.t.Helper()
	f.until(with, func(err error) bool { return err != nil && strings.Contains(err.Error(), with) })
}

// tick waits for one that is later.
func (f *followed) tick(after int64) {
	f.t.Helper()
	for {
		select {
		case wall := <-f.ticks:
			if wall > after {
				return
			}
		case <-f.late:
			f.t.Fatal("no tick came")
		}
	}
}

// TestSecretsChangeUnderAFollower rotates the certificates of both sides and the
// password of a server, and then what the follower has of them, one after the
// other. It goes on when it has all, without a restart.
func TestSecretsChangeUnderAFollower(t *testing.T) {
	k := &keyring{t: t, dir: t.TempDir()}
	ca, cert, key := k.server("first")
	for name, text := range map[string][]byte{"ca.pem": ca, "me.pem": cert, "me.key": key, "password": []byte("first\n")} {
		k.put(name, text)
	}
	server := serveSecured(t, k.path("web.yml"))
	a := access{Access: config.Access{CA: k.path("ca.pem"), Cert: k.path("me.pem"), Key: k.path("me.key"), Username: "me", PasswordFile: k.path("password")}}
	if err := a.understand(); err != nil {
		t.Fatal(err)
	}
	f, stop := followSecured(t, a, server.Addr().String())
	f.tick(0)
	ca, cert, key = k.server("second")
	server.cut()
	f.refused("certificate signed by unknown authority")
	k.put("ca.pem", ca)
	f.refused("remote error: tls: ")
	k.put("me.pem", cert) // and its key is still the old one's
	k.put("me.key", key)
	f.refused("401 Unauthorized")
	changed := time.Now().UnixNano()
	k.put("password", []byte("second\n"))
	f.until("the stream", func(err error) bool { return err == nil })
	f.tick(changed)
	stop()
}

// TestAFileIsReadAgainAfterARefusal though nothing tells that it changed.
func TestAFileIsReadAgainAfterARefusal(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	then := time.Unix(1_700_000_000, 0)
	write := func(text string) {
		if err := errors.Join(os.WriteFile(password, []byte(text), 0o600), os.Chtimes(password, then, then)); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	a := access{Access: config.Access{Username: "me", PasswordFile: password}}
	if err := a.understand(); err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, secret, _ := q.BasicAuth()
		asked <- secret
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer server.Close()
	client := a.client(time.Minute)
	write("two")
	for _, want := range []string{"one", "two"} {
		response, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if got := <-asked; got != want {
			t.Errorf("it is asked with %q, want %q", got, want)
		}
	}
}
