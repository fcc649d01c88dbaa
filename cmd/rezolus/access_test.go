// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/crypto/bcrypt"

	"rezolus/internal/config"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// sign makes the certificate of a template and its key, in PEM. A nil
// authority signs with that key.
func (a *authority) sign(template *x509.Certificate) (made *authority, cert, key []byte, err error) {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, err
	}
	if a == nil {
		a = &authority{template, own}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, own.Public(), a.key)
	if err != nil {
		return nil, nil, nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(own)
	return &authority{template, own}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), err
}

// template is a certificate for 127.0.0.1, of a server or a client.
func template(name string, serial int64, until time.Duration) *x509.Certificate {
	return &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-2 * time.Hour),
		NotAfter: time.Now().Add(until), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
}

// signing is a certificate that signs others.
func signing(serial int64) *x509.Certificate {
	signer := template("authority", serial, time.Hour)
	signer.IsCA, signer.BasicConstraintsValid, signer.KeyUsage, signer.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
	return signer
}

// webconfig writes what an agent with TLS and a password needs, and who asks
// it: webconfig USER PASSWORD. ca.pem signs cert.pem for 127.0.0.1 and me.pem
// for a client; other.pem signs nothing; old.pem has expired.
func webconfig(ts *testscript.TestScript, neg bool, args []string) {
	files := map[string][]byte{}
	add := func(by *authority, file, key string, t *x509.Certificate) *authority {
		made, cert, secret, err := by.sign(t)
		ts.Check(err)
		files[file], files[key] = cert, secret
		return made
	}
	signer := signing(1)
	ca := add(nil, "ca.pem", "ca.key", signer)
	add(nil, "other.pem", "other.key", signer)
	add(ca, "cert.pem", "key.pem", template("server", 2, time.Hour))
	add(ca, "old.pem", "old.key", template("server", 3, -time.Hour))
	add(ca, "me.pem", "me.key", template("client", 4, time.Hour))
	hash, err := bcrypt.GenerateFromPassword([]byte(args[1]), bcrypt.MinCost)
	ts.Check(err)
	server := "tls_server_config:\n  cert_file: %s\n  key_file: %s\n"
	users := fmt.Sprintf("basic_auth_users:\n  %s: %s\n", args[0], hash)
	files["web.yml"] = fmt.Appendf(nil, server+"%s", "cert.pem", "key.pem", users)
	files["old.yml"] = fmt.Appendf(nil, server, "old.pem", "old.key")
	files["both.yml"] = fmt.Appendf(nil, server+"  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n", "cert.pem", "key.pem")
	files["password"], files["wrong"] = []byte(args[1]+"\n"), []byte("wr0ng\n")
	for name, text := range files {
		ts.Check(os.WriteFile(ts.MkAbs(name), text, 0o600))
	}
}

// What is wrong with flags and keys is said by their names, and nothing that
// is secret.
func TestAccessRefuses(t *testing.T) {
	empty := t.TempDir() + "/empty"
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, a := range map[string]config.Access{
		"--ca: open no-such":                   {CA: "no-such"},
		"--ca " + empty + ": there is no":      {CA: empty},
		"--cert and --key: open no-such":       {Cert: "no-such"},
		"want both --username":                 {Username: "me"},
		"and --password-file":                  {PasswordFile: empty},
		"without a colon":                      {Username: "me:s3cret", PasswordFile: empty},
		"--password-file: open no-such":        {Username: "me", PasswordFile: "no-such"},
		"--password-file " + empty:             {Username: "me", PasswordFile: empty},
		"--header: want 'Name: value'":         {Headers: []string{"s3cret"}},
		"--header: open no-such":               {Headers: []string{"@no-such"}},
		"--header: want 'Name: value' of one ": {Headers: []string{"a: s3cret\nb: c"}},
	} {
		err := (&access{Access: a}).understand()
		if !errors.As(err, new(usage)) || !strings.Contains(err.Error(), strings.TrimSuffix(want, " of one ")) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%+v: %v, want %q", a, err, want)
		}
	}
	a := access{Access: config.Access{Username: "me"}, section: "general"}
	if err := a.understand(); err == nil || !strings.Contains(err.Error(), "general.username, without a colon, and general.password_file") {
		t.Errorf("of a configuration: %v", err)
	}
}

func TestAddressesAreSaidWithoutPassword(t *testing.T) {
	for address, want := range map[string]string{
		"http://me:s3cret@db1:4241": "http://me:xxxxx@db1:4241", "http://me:s3/cret@db1": "http://xxxxx@db1", "http://db1": "http://db1",
	} {
		if got := withoutPassword(address); got != want {
			t.Errorf("%s is said as %s, want %s", address, got, want)
		}
	}
	if _, err := endpoint("ftp://me:s3cret@db1", "", nil); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("an address that is none: %v", err)
	}
}
