// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// elsewhere are keys of the original that have no meaning here, with what
// there is instead.
var elsewhere = map[string]string{
	"general.snapshot_format": "there is one format; delete it",
	"scheduler":               "the agent needs no real-time priority; use nice(1) or the unit file, and delete it",
	"external_metrics":        "it is [external] here, and [samplers.external] enabled = true",
	"defaults.gpu_perf_level": "there is no such sampler; delete it",
}

// explain turns the library's errors into one line that names the line of the
// file and the fix.
func explain(err error) error {
	var unknown *toml.StrictMissingError
	var bad *toml.DecodeError
	switch {
	case errors.As(err, &unknown) && len(unknown.Errors) > 0:
		e := unknown.Errors[0]
		line, _ := e.Position()
		return fmt.Errorf("%d: %s", line, explainKey(e.Key()))
	case errors.As(err, &bad):
		line, column := bad.Position()
		text := strings.TrimPrefix(bad.Error(), "toml: ")
		if key := strings.Join(bad.Key(), "."); key != "" {
			text = key + ": " + text
		}
		return fmt.Errorf("%d:%d: %s", line, column, text)
	}
	return fmt.Errorf(" %w", err)
}

// explainFollower is explain for the configuration of a follower.
func explainFollower(e toml.DecodeError) error {
	line, _ := e.Position()
	name := strings.Join(e.Key(), ".")
	if name == "general.segment_rows" {
		return fmt.Errorf("%d: %s is a key of the original Rezolus: segments have a length of their own; delete it", line, name)
	}
	return fmt.Errorf("%d: unknown key %s%s", line, name, didYouMean(name, keys(reflect.TypeFor[Follower](), "", e.Key())))
}

func explainKey(key []string) string {
	name := strings.Join(key, ".")
	for prefix, instead := range elsewhere {
		if name == prefix || strings.HasPrefix(name, prefix+".") {
			return fmt.Sprintf("%s is a key of the original Rezolus: %s", name, instead)
		}
	}
	return fmt.Sprintf("unknown key %s%s", name, didYouMean(name, keys(reflect.TypeFor[Config](), "", key)))
}

// keys lists every key there can be. Tables with free names take theirs from
// the key that was written.
func keys(t reflect.Type, prefix string, written []string) []string {
	var all []string
	for i := range t.NumField() {
		f := t.Field(i)
		name := prefix + f.Tag.Get("toml")
		switch {
		case f.Anonymous: // its keys are the table's own
			all = append(all, keys(f.Type, prefix, nil)...)
		case f.Type.Kind() == reflect.Map && len(written) > 1:
			all = append(all, keys(f.Type.Elem(), name+"."+written[1]+".", nil)...)
		case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
			all = append(all, name)
			all = append(all, keys(f.Type.Elem(), name+".", nil)...)
		case f.Type.Kind() == reflect.Struct:
			all = append(all, name)
			all = append(all, keys(f.Type, name+".", nil)...)
		default:
			all = append(all, name)
		}
	}
	return all
}

// didYouMean is the nearest of the candidates as an addition to an error, or
// "" when none is near.
func didYouMean(word string, candidates []string) string {
	best, distance := "", 1+len(word)/3
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := editDistance(word, c); d <= distance {
			if best == "" || d < distance {
				best, distance = c, d
			}
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// editDistance is Levenshtein's.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
