// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFunctions(t *testing.T) {
	c, err := Parse([]byte(`
[[functions]]
path = "libc.so.6"
function = "malloc"
latency = true
[[functions]]
name = "work"
path = "/usr/bin/server"
function = "main.(*Server).work+0x10"
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Function{{"", "libc.so.6", "malloc", true}, {"work", "/usr/bin/server", "main.(*Server).work+0x10", false}}
	if diff := cmp.Diff(want, c.Functions); diff != "" {
		t.Error(diff)
	}
	for i, labels := range []string{"libc.so.6:malloc", "server:work"} {
		if got := c.Functions[i].Library() + ":" + c.Functions[i].Label(); got != labels {
			t.Errorf("labels %s, want %s", got, labels)
		}
	}
}

func TestBadFunctionsNameTheFix(t *testing.T) {
	f := func(text string, wants ...string) {
		t.Helper()
		_, err := Parse([]byte(text))
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %v, want %q in it", text, err, want)
			}
		}
	}
	const malloc = "[[functions]]\npath = \"libc.so.6\"\nfunction = \"malloc\"\n"
	f("[[functions]]\npath = \"x\"", "number 1", "function is missing", "such as malloc")
	f("[[functions]]\nfunction = \"x\"", "functions (x)", "path is missing")
	f("[[functions]]\nfunction = \"x\"\npath = \"bin/x\"", "bin/x", "absolute path")
	f(malloc+malloc, "another malloc of libc.so.6", "another name")
	f(malloc+"[[functions]]\npath = \"/opt/libc.so.6\"\nfunction = \"malloc\"\n", "another malloc of libc.so.6")
	f(malloc+"latencies = true", "unknown key functions.latencies", "did you mean functions.latency?")
	f(strings.Repeat("[[functions]]\n", MaxFunctions+1), "65 functions", "at most 64")
}
