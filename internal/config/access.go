// SPDX-License-Identifier: Apache-2.0

package config

// Access is how an agent is reached that does not take everybody: by the
// certificates of TLS, a password, a token. The commands that ask an agent have
// flags of the same names. What is secret is in files that are named here.
type Access struct {
	CA           string   `toml:"ca"`       // file of the certificates that sign the agent's; empty: the system's
	Cert         string   `toml:"cert"`     // file of our certificate
	Key          string   `toml:"key"`      // file of its key
	Insecure     bool     `toml:"insecure"` // any certificate is taken
	Username     string   `toml:"username"`
	PasswordFile string   `toml:"password_file"`
	Headers      []string `toml:"headers"` // "Name: value" each, or @ and a file of one
}
