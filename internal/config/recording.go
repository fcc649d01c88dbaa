// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Recording is the file of `rezolus record --config`, as the original has it.
// What stands on the command line goes before it.
type Recording struct {
	Recording RecordingPart       `toml:"recording"`
	Endpoints []RecordingEndpoint `toml:"endpoints"`
}

// RecordingPart is what is about the recording as a whole. What is empty is
// the command's own default.
type RecordingPart struct {
	Output   string `toml:"output"`
	Interval string `toml:"interval"`
	Duration string `toml:"duration"`
	Format   string `toml:"format"`
	Separate bool   `toml:"separate"`
	Access          // to all endpoints
}

// RecordingEndpoint is one place to record.
type RecordingEndpoint struct {
	URL      string `toml:"url"`
	Source   string `toml:"source"`
	Role     string `toml:"role"`
	Protocol string `toml:"protocol"` // rezolus or prometheus; empty: it is found out
}

// Spec is the endpoint as the command line has it.
func (e RecordingEndpoint) Spec() string {
	spec := e.URL
	for _, o := range [][2]string{{"source", e.Source}, {"role", e.Role}, {"protocol", e.Protocol}} {
		if o[1] != "" {
			spec += "," + o[0] + "=" + o[1]
		}
	}
	return spec
}

// ReadRecording reads the file at path.
func ReadRecording(path string) (*Recording, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	r, err := ParseRecording(text)
	if err != nil {
		return nil, fmt.Errorf("%s:%w", path, err)
	}
	return r, nil
}

// ParseRecording reads a configuration. The error begins with the line it is
// about.
func ParseRecording(text []byte) (*Recording, error) {
	r := &Recording{}
	d := toml.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	err := d.Decode(r)
	var unknown *toml.StrictMissingError
	switch {
	case errors.As(err, &unknown) && len(unknown.Errors) > 0:
		line, _ := unknown.Errors[0].Position()
		name := strings.Join(unknown.Errors[0].Key(), ".")
		return nil, fmt.Errorf("%d: unknown key %s%s", line, name,
			didYouMean(name, keys(reflect.TypeFor[Recording](), "", unknown.Errors[0].Key())))
	case err != nil:
		return nil, explain(err)
	}
	for i, e := range r.Endpoints {
		if e.URL == "" || strings.ContainsAny(e.URL+e.Source+e.Role+e.Protocol, ",") {
			return nil, fmt.Errorf(" endpoints: number %d wants a url, and nothing with a comma in it", i+1)
		}
	}
	return r, nil
}
