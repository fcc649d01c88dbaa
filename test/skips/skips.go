// SPDX-License-Identifier: Apache-2.0

// Package skips holds the tests that may skip, each with its reason, so that
// a test which silently stops testing fails the build.
package skips

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// Check compares the tests that skipped in an environment ("host", or a
// kernel such as "6.1-amd64") with the list in file. Each line of the list is
//
//	environment package.Test reason...
//
// where environment and test are patterns as path.Match has them. The error
// names every skip the list does not allow.
func Check(file, environment string, skipped []string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	allowed, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var unexplained []string
	for _, test := range skipped {
		if !slices.ContainsFunc(allowed, func(a entry) bool { return a.matches(environment, test) }) {
			unexplained = append(unexplained, test)
		}
	}
	if len(unexplained) > 0 {
		return fmt.Errorf("skipped on %s without a reason in %s: %s", environment, file, strings.Join(unexplained, " "))
	}
	return nil
}

type entry struct{ environment, test string }

func (e entry) matches(environment, test string) bool {
	inEnvironment, _ := path.Match(e.environment, environment)
	isTest, _ := path.Match(e.test, test)
	return inEnvironment && isTest
}

func parse(text string) ([]entry, error) {
	var entries []entry
	for i, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 5 {
			return nil, fmt.Errorf("line %d: want environment, test and a reason", i+1)
		}
		for _, pattern := range fields[:2] {
			if _, err := path.Match(pattern, ""); err != nil {
				return nil, fmt.Errorf("line %d: pattern %q: %w", i+1, pattern, err)
			}
		}
		entries = append(entries, entry{fields[0], fields[1]})
	}
	return entries, nil
}
