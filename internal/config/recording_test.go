// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRecordingFile(t *testing.T) {
	got, err := ParseRecording([]byte(`[recording]
output = "x.parquet"
interval = "500ms"
duration = "1m"
format = "parquet"
separate = true
ca = "ca.pem"
username = "me"
password_file = "p"
headers = ["@token"]
[[endpoints]]
url = "http://a:4241"
source = "rezolus"
role = "service"
[[endpoints]]
url = "http://b:9090/metrics"
protocol = "prometheus"
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Recording{RecordingPart{"x.parquet", "500ms", "1m", "parquet", true,
		Access{CA: "ca.pem", Username: "me", PasswordFile: "p", Headers: []string{"@token"}}},
		[]RecordingEndpoint{{"http://a:4241", "rezolus", "service", ""}, {"http://b:9090/metrics", "", "", "prometheus"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	specs := got.Endpoints[0].Spec() + " " + got.Endpoints[1].Spec()
	if specs != "http://a:4241,source=rezolus,role=service http://b:9090/metrics,protocol=prometheus" {
		t.Errorf("%q", specs)
	}
	for text, want := range map[string]string{
		"[recording]\noutptu = \"x\"":                  "2: unknown key recording.outptu",
		"[[endpoints]]\nsource = \"x\"":                "number 1 wants a url",
		"[[endpoints]]\nurl = \"a\"\nrole = \"b,c=d\"": "nothing with a comma",
		"[recording]\nseparate = 3":                    "2:",
		"[recording]\npasword_file = \"x\"":            "2: unknown key recording.pasword_file; did you mean recording.password_file?",
	} {
		if _, err := ParseRecording([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParseRecording(f *testing.F) {
	f.Add([]byte("[recording]\ninterval = \"1s\"\n[[endpoints]]\nurl = \"http://a\"\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if r, err := ParseRecording(text); err == nil {
			for _, e := range r.Endpoints {
				if !strings.HasPrefix(e.Spec(), e.URL) || strings.Count(e.Spec(), ",") > 3 {
					t.Errorf("%q", e.Spec())
				}
			}
		}
	})
}
