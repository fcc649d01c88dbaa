// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"
)

func TestBudget(t *testing.T) {
	f := func(text string, want Budget) {
		t.Helper()
		if c, err := Parse([]byte(text)); err != nil || c.Budget != want {
			t.Errorf("%q is %+v, %v; want %+v", text, c.Budget, err, want)
		}
	}
	f("", Budget{Percent{0.01}, 64 << 20, Duration(10 * time.Second)})
	f("[budget]\ncpu = \"0.5%\"\nmemory = \"100MiB\"\ninterval = \"1s\"", Budget{Percent{0.005}, 100 << 20, Duration(time.Second)})
	f("[budget]\ncpu = \" 100 % \"", Budget{Percent{1}, 64 << 20, Duration(10 * time.Second)})

	bad := func(text string, wants ...string) {
		t.Helper()
		_, err := Parse([]byte(text))
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %v, want %q", text, err, want)
			}
		}
	}
	bad("[budget]\ncpu = \"0.5\"", "2:", `"0.5" is not a share`, `such as "0.5%"`)
	bad("[budget]\ncpu = 0.5", `"0.5" is not a share`)
	bad("[budget]\ncpu = \"-1%\"", `"-1%" is not a share`)
	bad("[budget]\ncpu = \"NaN%\"", "is not a share")
	bad("[budget]\ncpu = \"%\"", "is not a share")
	bad("[budget]\ncpu = \"0%\"", "budget.cpu 0%: want more than 0%")
	bad("[budget]\ncpu = \"200%\"", "budget.cpu 200%", "at most 100%")
	bad("[budget]\nmemory = \"1MiB\"", "budget.memory 1MiB: want at least 16MiB")
	bad("[budget]\ninterval = \"1ms\"", "budget.interval 1ms: want 100ms to 1h")
	bad("[budget]\ncups = \"1%\"", "did you mean budget.cpu?")
}
