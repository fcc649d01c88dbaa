// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// document reads the numbers of a JSON object. An object within it adds its
// name to those of its numbers: {"cache": {"hits": 1}} is cache_hits. Strings,
// booleans, nulls and arrays are passed over.
type document struct {
	*table
	counters []string // names, before the prefix
}

// maxDepth is how deep objects are followed.
const maxDepth = 16

var errObject = errors.New("the document is no object")

func (p *document) parse(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if t, err := d.Token(); err != nil {
		return jsonError(err)
	} else if t != json.Delim('{') {
		return errObject
	}
	if err := p.object(d, nil, 1); err != nil {
		return jsonError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the document")
	}
	return nil
}

func jsonError(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("json: %w", err)
}

// object reads what follows a brace, and the closing one.
func (p *document) object(d *json.Decoder, path []byte, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("more than %d objects within each other", maxDepth)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		name := path
		if len(name) > 0 {
			name = append(name, '_')
		}
		name = append(name, key.(string)...) // the decoder lets nothing else be one
		value, err := d.Token()
		if err != nil {
			return err
		}
		switch value := value.(type) {
		case json.Delim:
			if value == '{' {
				err = p.object(d, name, depth+1)
			} else {
				err = skipArray(d)
			}
		case json.Number:
			p.number(name, value)
		}
		if err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

func skipArray(d *json.Decoder) error {
	for open := 1; open > 0; {
		t, err := d.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('['), json.Delim('{'):
			open++
		case json.Delim(']'), json.Delim('}'):
			open--
		}
	}
	return nil
}

func (p *document) number(name []byte, n json.Number) {
	r, ok := parseReading([]byte(n))
	if !ok || p.quick(name, r) {
		return
	}
	d := declared{kind: gauge}
	if slices.Contains(p.counters, string(name)) {
		d.kind = counter
	}
	p.add(name, string(name), d, nil, r)
}
