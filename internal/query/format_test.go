// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"rezolus/internal/metric"
)

// formatted asks the columns of the API's tests.
func formatted(t *testing.T, format, want string, res *Result, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
		return
	}
	var b strings.Builder
	if err := Format(&b, res, format); err != nil {
		t.Error(err)
	}
	if want = strings.TrimPrefix(want, "\n"); b.String() != want {
		t.Errorf("%s:\n%s\nwant\n%s", format, b.String(), want)
	}
}

func TestFormatInstant(t *testing.T) {
	f := func(expr, format, want string) {
		t.Helper()
		res, err := New(Options{}).Instant(context.Background(), apiReader(), expr, ms(1000))
		formatted(t, format, want, res, err)
	}
	f("switches", "table", `
switches{kind="voluntary"} at 2023-11-14T22:13:21.000Z
id  value
0      20
1       2
`)
	f("switches / 3", "table", `
{kind="voluntary"} at 2023-11-14T22:13:21.000Z
id     value
0    6.66667
1   0.666667
`)
	f("latency", "table", `
latency at 2023-11-14T22:13:21.000Z
                  value
2 values, p50 3, p99 21
`)
	f(`{__name__=~"switches|latency"}`, "table", `
at 2023-11-14T22:13:21.000Z
metric    id  kind                         value
latency                  2 values, p50 3, p99 21
switches  0   voluntary                       20
switches  1   voluntary                        2
`)
	f("nothing", "table", "no data\n")
	f("1.5e-7", "table", "1.5e-07\n")
	f("123456.789", "table", "123457\n")
	f("1e12", "table", "1000000000000\n")
	f("0/0", "table", "NaN\n")
	f(`"text"`, "table", "text\n")
	f("switches", "csv", `
time,__name__,id,kind,value
2023-11-14T22:13:21.000Z,switches,0,voluntary,20
2023-11-14T22:13:21.000Z,switches,1,voluntary,2
`)
	f("latency", "csv", `
time,__name__,lower,upper,value
2023-11-14T22:13:21.000Z,latency,2,3,1
2023-11-14T22:13:21.000Z,latency,19,21,1
`)
	f(`"text"`, "csv", "time,value\n2023-11-14T22:13:21.000Z,text\n")
	f("switches{id=\"1\"}", "json", `{"resultType":"vector","result":[{"metric":{"__name__":"switches","id":"1","kind":"voluntary"},"value":[1700000001,"2"]}]}`+"\n")
}

func TestFormatRange(t *testing.T) {
	f := func(r Reader, expr, format, want string) {
		t.Helper()
		res, err := New(Options{}).Range(context.Background(), r, expr, ms(0), ms(2000), time.Second)
		formatted(t, format, want, res, err)
	}
	f(apiReader(), "switches", "table", `
switches{kind="voluntary"}
time                       0  1
2023-11-14T22:13:20.000Z  10  1
2023-11-14T22:13:21.000Z  20  2
2023-11-14T22:13:22.000Z  20  2
`)
	f(apiReader(), "sum(switches)", "table", `
time                      value
2023-11-14T22:13:20.000Z     11
2023-11-14T22:13:21.000Z     22
2023-11-14T22:13:22.000Z     22
`)
	f(apiReader(), "sum(switches)", "csv", `
time,value
2023-11-14T22:13:20.000Z,11
2023-11-14T22:13:21.000Z,22
2023-11-14T22:13:22.000Z,22
`)
	// What is too wide for a line is summarized.
	wide := &fakeReader{}
	d := desc("c", metric.Counter, "name")
	for _, name := range []string{"/system.slice/a.service", "/system.slice/b.service", "/user.slice/user-1000.slice/session-1.scope", "/"} {
		wide.columns = append(wide.columns, words(d, []string{name}, -1, [2]float64{0, 1}, [2]float64{1000, 4}, [2]float64{2000, 6}))
	}
	wide.columns = append(wide.columns, dense(desc("h", metric.Histogram, "name"), []string{"/"}, -1, []float64{0}, [][]uint64{counts(1, 2, 2)}))
	f(wide, `{name=~".+"}`, "table", `
metric  name                                         points  min     mean  max                    last
c       /                                                 3    1  3.66667    6                       6
c       /system.slice/a.service                           3    1  3.66667    6                       6
c       /system.slice/b.service                           3    1  3.66667    6                       6
c       /user.slice/user-1000.slice/session-1.scope       3    1  3.66667    6                       6
h       /                                                 3                     3 values, p50 2, p99 2
`)
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestFormatFails(t *testing.T) {
	res, err := New(Options{}).Instant(context.Background(), apiReader(), "switches", ms(0))
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range Formats {
		if err := Format(full{}, res, format); err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Errorf("%s to a full disk: error %v", format, err)
		}
	}
	if err := Format(full{}, res, "xml"); err == nil || err.Error() != `format "xml": want one of table, json, csv` {
		t.Errorf("unknown format: %v", err)
	}
}
