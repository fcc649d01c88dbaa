// SPDX-License-Identifier: Apache-2.0

package query

import (
	"errors"
	"testing"

	"rezolus/internal/metric"
)

func TestSelectorChoosesSeries(t *testing.T) {
	usage := &metric.Desc{Name: "cpu_usage", Kind: metric.Counter, Keys: []string{"id", "state"}}
	series := &metric.Series{Desc: usage, Values: []string{"1", "user"}}
	f := func(selector string, want bool) {
		t.Helper()
		match, err := Selector(selector)
		if err != nil {
			t.Fatal(err)
		}
		if match(series) != want {
			t.Errorf("%s matches: %v, want %v", selector, !want, want)
		}
	}
	f(`cpu_usage`, true)
	f(`cpu_usag`, false)
	f(`cpu_usage{id="1"}`, true)
	f(`cpu_usage{id="1",state!="user"}`, false)
	f(`{state=~"us.*"}`, true)
	f(`{node=""}`, true)
	f(`{node!=""}`, false)
}

func TestSelectorSaysWhereItIsNone(t *testing.T) {
	var syntax *SyntaxError
	if _, err := Selector(`cpu_usage{id="1"`); !errors.As(err, &syntax) {
		t.Errorf("error %v, want a SyntaxError", err)
	}
	if _, err := Selector(`rate(x[5s])`); !errors.As(err, &syntax) {
		t.Errorf("error %v, want a SyntaxError", err)
	}
}
