// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/histogram"

	"rezolus/internal/hist"
	"rezolus/internal/metric"
)

func ms(t float64) time.Time { return time.Unix(0, at(t)) }

// show is a result in one line: labels, then values.
func show(r *Result) string {
	var b strings.Builder
	for i, s := range r.Series {
		if i > 0 {
			b.WriteString("; ")
		}
		for _, l := range s.Labels {
			fmt.Fprintf(&b, "%s=%s ", strings.TrimPrefix(l.Name, nameLabel), l.Value)
		}
		for _, p := range s.Points {
			fmt.Fprintf(&b, "%g@%g ", p.V, float64(p.T-toMs(origin)))
		}
		for _, p := range s.Histograms {
			fmt.Fprintf(&b, "%g/%g@%g ", p.H.Count, p.H.Sum, float64(p.T-toMs(origin)))
		}
	}
	return strings.TrimSpace(b.String())
}

// asker asks one reader and compares the answers.
type asker struct {
	t *testing.T
	e *Engine
	r Reader
}

func ask(t *testing.T, columns ...metric.Column) asker {
	return asker{t, New(Options{}), &fakeReader{columns: columns}}
}

func (a asker) instant(expr string, t float64, want string) {
	a.t.Helper()
	res, err := a.e.Instant(context.Background(), a.r, expr, ms(t))
	a.check(expr, res, err, want)
}

func (a asker) ranged(expr string, from, to float64, step time.Duration, want string) {
	a.t.Helper()
	res, err := a.e.Range(context.Background(), a.r, expr, ms(from), ms(to), step)
	a.check(expr, res, err, want)
}

func (a asker) check(expr string, res *Result, err error, want string) {
	a.t.Helper()
	if err != nil {
		a.t.Errorf("%s: %v", expr, err)
	} else if got := show(res); got != want {
		a.t.Errorf("%s:\n got %s\nwant %s", expr, got, want)
	}
}

func TestSeriesHaveTheirNameAndLabels(t *testing.T) {
	d := desc("scheduler_context_switch", metric.Counter, "id", "kind")
	a := ask(t,
		words(d, []string{"1", "voluntary"}, -500, [2]float64{0, 20}),
		words(d, []string{"0", "voluntary"}, -500, [2]float64{0, 10}),
		words(d, []string{"0", ""}, -500, [2]float64{0, 5}),
		words(desc("up", metric.Gauge, "Upper"), []string{"x"}, 0, [2]float64{0, -3}))
	a.instant(`scheduler_context_switch{id="1"}`, 0, "=scheduler_context_switch id=1 kind=voluntary 20@0")
	a.instant(`sort({kind!="",id=~"0|1"})`, 0, "=scheduler_context_switch id=0 kind=voluntary 10@0 ; =scheduler_context_switch id=1 kind=voluntary 20@0")
	a.instant(`scheduler_context_switch{kind=""}`, 0, "=scheduler_context_switch id=0 5@0")
	a.instant(`sum by (kind) (scheduler_context_switch{kind="voluntary"})`, 0, "kind=voluntary 30@0")
	a.instant(`up`, 0, "Upper=x =up -3@0")
	a.instant(`nothing`, 0, "")
}

func TestTheWholeOfAMillisecondIsSeenAtItsEnd(t *testing.T) {
	c := words(desc("c", metric.Counter), nil, -10, [2]float64{0.1, 1}, [2]float64{0.6, 2}, [2]float64{1, 3}, [2]float64{1.9, 4}, [2]float64{5, 9})
	a := ask(t, c)
	a.instant("c", 0, "=c 2@0")
	a.instant("c", 1, "=c 4@1")
	a.instant("c[3ms]", 2, "=c 2@0 4@1")
	a.instant("increase(c[6ms] anchored)", 5, "7@5")
	a.ranged("c", 0, 2, time.Millisecond, "=c 2@0 4@1 4@2")
}

func TestSubSecondRangesAndSteps(t *testing.T) {
	c := metric.Column{Desc: desc("c", metric.Counter)}
	for i := range 1000 { // one a millisecond, ten each
		c = join(c, words(c.Desc, nil, -1000, [2]float64{float64(i), float64(10 * i)}))
	}
	a := ask(t, c)
	a.ranged("rate(c[100ms])", 300, 500, 100*time.Millisecond, "10000@300 10000@400 10000@500")
	a.instant("max_over_time(rate(c[50ms])[200ms:25ms])", 500, "10000@500")
	a.instant("c offset 250ms", 500, "=c 2500@500")
	a.instant("count_over_time(c[900ms:])", 999, "") // steps are whole seconds
	a.instant("count_over_time(c[900ms:])", 1899, "1@1899")
}

func TestASeriesEndsWhereItIsGone(t *testing.T) {
	c := words(desc("c", metric.Counter), nil, -500, [2]float64{0, 10}, [2]float64{1000, 20})
	c.Gone = []int64{at(2000)}
	c = join(c, words(c.Desc, nil, 4500, [2]float64{5000, 3}, [2]float64{6000, 4}))
	a := ask(t, c)
	a.ranged("c", 0, 6000, time.Second, "=c 10@0 20@1000 3@5000 4@6000")
	// Its two lives are no reset from 20 to 3 but 20-10 and then 4 from zero.
	a.instant("increase(c[6001ms] anchored)", 6000, "14@6000")
	a.instant("resets(c[10s])", 6000, "1@6000")
	a.instant("irate(c[10s])", 5000, "0.75@5000") // 3 since the sample before
}

// A recording may hold a metric from two versions of an agent.
func TestAMetricThatChangedItsKindIsOneSeries(t *testing.T) {
	a := ask(t,
		dense(desc("m", metric.Histogram), nil, 1500, []float64{2000, 3000}, [][]uint64{counts(1), counts(1, 2)}),
		words(desc("other", metric.Gauge), nil, 0, [2]float64{0, 1}),
		words(desc("m", metric.Counter), nil, -500, [2]float64{0, 1}, [2]float64{1000, 2}))
	a.ranged("m", 0, 3000, time.Second, "=m 1@0 2@1000 1/1@2000 2/3@3000")
	a.instant("count({__name__=~'.+'})", 3000, "2@3000")
}

func TestAHistogramEndsWhereItIsGone(t *testing.T) {
	d := desc("h", metric.Histogram)
	c := dense(d, nil, -500, []float64{0, 1000}, [][]uint64{counts(3, 5), counts(3, 5, 7)})
	c.Gone = []int64{at(2000)}
	a := ask(t, c)
	a.ranged("histogram_count(h)", 0, 3000, time.Second, "2@0 3@1000")
}

func TestIncreaseIsExactFromTheBirth(t *testing.T) {
	d := desc("c", metric.Counter)
	a := ask(t, words(d, nil, 200, [2]float64{1000, 8}, [2]float64{2000, 18}, [2]float64{3000, 28}))
	a.instant("increase(c[10s])", 3000, "28@3000")
	a.instant("increase(c[10s])", 1000, "8@1000")
	a.instant("c", 500, "") // no value is invented at the start
	// A start outside the range is no sample in it.
	a.instant("increase(c[2s])", 3000, "20@3000")
}

func TestAResetIsWhereTheStartSays(t *testing.T) {
	d := desc("c", metric.Counter)
	first := words(d, nil, -500, [2]float64{0, 5}, [2]float64{1000, 6})
	a := ask(t, join(first, words(d, nil, 1500, [2]float64{2000, 100}, [2]float64{3000, 101})))
	a.instant("resets(c[10s])", 3000, "1@3000")
	a.instant("increase(c[10s])", 3000, "107@3000") // 6, then 101
}

// A tick's time is when it was due; a start may be some microseconds later,
// and within the millisecond of the tick before.
func TestAStartBesideTheTickIsOneReset(t *testing.T) {
	d := desc("c", metric.Counter)
	f := func(start float64) {
		t.Helper()
		first := words(d, nil, -500, [2]float64{0, 5}, [2]float64{1000, 6})
		a := ask(t, join(first, words(d, nil, start, [2]float64{2000, 7}, [2]float64{3000, 8}, [2]float64{4000, 9})))
		a.instant("resets(c[10s])", 4000, "1@4000")
		a.instant("increase(c[4001ms] anchored)", 4000, "4@4000") // the values do not show it
		a.instant("round(increase(c[4001ms]))", 4000, "10@4000")  // the starts do
		if res, _ := a.e.Instant(context.Background(), a.r, "rate(c[10s])", ms(4000)); len(res.Warnings) > 0 {
			t.Errorf("start %v: %v", start, res.Warnings)
		}
	}
	f(1000)
	f(1000.3)
	f(999.7)
	f(1500)
	f(1999.9)
	f(2000)
	f(2000.2)
	f(2003)
}

func TestAnUnknownStartIsNone(t *testing.T) {
	c := words(desc("c", metric.Counter), nil, 0, [2]float64{0, 5}, [2]float64{1000, 7})
	clear(c.Start)
	ask(t, c).instant("increase(c[1001ms])", 1000, "2.002@1000")
}

func TestGauges(t *testing.T) {
	f := &metric.Desc{Name: "ratio", Kind: metric.Gauge, Float: true}
	c := metric.Column{Desc: f, Time: []int64{at(0)}, Start: []int64{0}, Word: []uint64{math.Float64bits(0.25)}}
	a := ask(t, c, words(desc("g", metric.Gauge), nil, 0, [2]float64{0, -7}))
	a.instant("ratio", 0, "=ratio 0.25@0")
	a.instant("g", 0, "=g -7@0")
}

func TestLookback(t *testing.T) {
	a := ask(t, words(desc("g", metric.Gauge), nil, 0, [2]float64{0, 1}))
	a.instant("g", 59_999, "=g 1@59999")
	a.instant("g", 60_000, "")
	a.e = New(Options{Lookback: time.Second})
	a.instant("g", 999, "=g 1@999")
	a.instant("g", 1000, "")
}

// counts is a histogram of the default power that has counted the values.
func counts(values ...uint64) []uint64 {
	b := make([]uint64, hist.Default.Buckets())
	for _, v := range values {
		b[hist.Default.Index(v)]++
	}
	return b
}

func TestHistogramsAreExact(t *testing.T) {
	d := desc("h", metric.Histogram)
	top := uint64(math.MaxUint64)
	a := ask(t, dense(d, nil, -500, []float64{0, 1000, 2000},
		[][]uint64{counts(0, 1), counts(0, 1, 15, 16, 17, 1000), counts(0, 1, 15, 16, 17, 1000, 1<<63, top)}))
	res, err := a.e.Instant(context.Background(), a.r, "h", ms(2000))
	if err != nil {
		t.Fatal(err)
	}
	// The buckets are those of the H2 layout: 16 and 17 share one.
	want := `{"resultType":"vector","result":[{"metric":{"__name__":"h"},"histogram":[1700000002,` +
		`{"count":"8","sum":"27670116110564327000","buckets":[[3,"-Inf","0","1"],[0,"0","1","1"],[0,"14","15","1"],` +
		`[0,"15","17","2"],[0,"959","1023","1"],[0,"9223372036854776000","10376293541461623000","1"],` +
		`[0,"17293822569102705000","18446744073709552000","1"]]}]}]}`
	if got := string(res.AppendJSON(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	a.instant("histogram_count(h)", 1000, "6@1000")
	a.instant("histogram_sum(h)", 0, "1@0")
	a.instant("histogram_sum(h)", 1000, "1040.5@1000") // 0+1+15+2*16.5+991.5
	a.instant("histogram_fraction(0, 15, h)", 1000, "0.5@1000")
	a.instant("histogram_quantile(1, h)", 2000, "1.8446744073709552e+19@2000")
	a.instant("histogram_count(increase(h[10s]))", 2000, "8@2000")
	a.instant("sum(h)", 1000, "6/1040.5@1000")
	a.instant("histogram_count(h - h offset 1s)", 1000, "4@1000")
}

func TestHistogramResetsAreWhereTheStartSays(t *testing.T) {
	d := desc("h", metric.Histogram)
	// Every bucket of the second life is above the first life's.
	a := ask(t, dense(d, nil, -500, []float64{0, 1000, 2000, 3000},
		[][]uint64{counts(3), counts(3, 4), counts(3, 4, 5), counts(3, 4, 5, 6)}, 2))
	a.instant("resets(h[10s])", 3000, "1@3000")
	a.instant("histogram_count(increase(h[10s]))", 3000, "6@3000") // 2, then 4
}

// The engine's quantiles must lie in the buckets that the plain definition
// finds, up to the way the engine counts ranks.
func TestQuantilesAgreeWithHist(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for p := hist.MinPower; p <= hist.MaxPower; p++ {
		d := &metric.Desc{Name: "h", Kind: metric.Histogram, Power: p}
		before, after := make([]uint64, p.Buckets()), make([]uint64, p.Buckets())
		for range 509 { // a prime: no rank lies between two values
			v := rng.Uint64() >> (20 + rng.IntN(44))
			after[p.Index(v)]++
		}
		c := dense(d, nil, -500, []float64{0, 60_000}, [][]uint64{before, after})
		for _, q := range []float64{0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1} {
			res, err := New(Options{}).Instant(context.Background(), &fakeReader{columns: []metric.Column{c}},
				fmt.Sprintf("histogram_quantile(%g, rate(h[61s]))", q), ms(60_000))
			if err != nil || len(res.Series) != 1 {
				t.Fatalf("power %d: %v, %v", p, res, err)
			}
			got := res.Series[0].Points[0].V
			lo, hi, _ := p.Quantile(after, q)
			below := 0.0 // the end of the bucket below belongs to this one
			if lo > 0 {
				below = float64(lo - 1)
			}
			if got < below || got > float64(hi) {
				t.Errorf("power %d: quantile %g is %g, want within [%g, %d]", p, q, got, below, hi)
			}
		}
	}
}

func TestSyntaxErrors(t *testing.T) {
	f := func(expr, text, excerpt string) {
		t.Helper()
		_, err := New(Options{}).Instant(context.Background(), &fakeReader{}, expr, ms(0))
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || !strings.Contains(err.Error(), text) || syntax.Excerpt() != excerpt {
			t.Errorf("%q: error %v\n%s\nwant %q\n%s", expr, err, syntax.Excerpt(), text, excerpt)
		}
	}
	f("rate(c[5m]", `1:11: parse error: unclosed left parenthesis`, "rate(c[5m]\n          ^")
	f("sum(a)\n  +\tby (b) c", `2:8: parse error: unexpected "("`, "  +\tby (b) c\n   \t   ^")
	f("rate(c)", `1:6: parse error: expected type range vector`, "rate(c)\n     ^")
	f("", `unknown position: parse error: no expression found in input`, "\n^")
}

func TestErrorsHaveTheirKind(t *testing.T) {
	c := words(desc("c", metric.Counter), nil, -1, [2]float64{0, 1}, [2]float64{1, 2}, [2]float64{2, 3})
	broken := errors.New("disk on fire")
	f := func(want error, e *Engine, r Reader, ctx context.Context) {
		t.Helper()
		if _, err := e.Instant(ctx, r, "rate(c[1m])", ms(2)); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	}
	ctx := context.Background()
	stopped, stop := context.WithCancel(ctx)
	stop()
	f(ErrLimit, New(Options{MaxSamples: 2}), &fakeReader{columns: []metric.Column{c}}, ctx)
	f(ErrLimit, New(Options{Timeout: time.Millisecond}), &fakeReader{columns: []metric.Column{c}, block: make(chan struct{})}, ctx)
	f(ErrRead, New(Options{}), &fakeReader{columns: []metric.Column{c}, err: broken}, ctx)
	f(broken, New(Options{}), &fakeReader{columns: []metric.Column{c}, err: broken}, ctx)
	f(context.Canceled, New(Options{}), &fakeReader{columns: []metric.Column{c}}, stopped)
}

func TestRangesThatAreRefused(t *testing.T) {
	f := func(from, to float64, step time.Duration, want string) {
		t.Helper()
		_, err := New(Options{}).Range(context.Background(), &fakeReader{}, "1", ms(from), ms(to), step)
		if !errors.Is(err, ErrRange) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
	f(1, 0, time.Second, "end timestamp must not be before start time")
	f(0, 1, 0, "zero or negative")
	f(0, 1, time.Microsecond, "finer than a millisecond")
	f(0, 11_001, time.Millisecond, "11,000 points")
	if _, err := New(Options{}).Range(context.Background(), &fakeReader{}, "1", ms(0), ms(11_000), time.Millisecond); err != nil {
		t.Error(err)
	}
}

func TestOnlySoManyQueriesRunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := words(desc("c", metric.Counter), nil, -1, [2]float64{0, 1})
		block := make(chan struct{})
		r := &fakeReader{columns: []metric.Column{c}, block: block}
		e := New(Options{Concurrency: 1})
		first := make(chan error)
		go func() {
			_, err := e.Instant(context.Background(), r, "c", ms(0))
			first <- err
		}()
		synctest.Wait() // the first reads
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := e.Instant(ctx, r, "c", ms(0)); !errors.Is(err, ErrLimit) {
			t.Errorf("the second query: %v, want ErrLimit after its wait", err)
		}
		close(block)
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

// The engine need not compare buckets where the start says there was no
// reset, and must where it does not.
func TestHistogramHints(t *testing.T) {
	d := desc("h", metric.Histogram)
	c := dense(d, nil, -500, []float64{0, 1000, 2000, 3000}, [][]uint64{counts(3), counts(3), counts(4), counts(4)}, 2)
	it := (&series{column: &c}).Iterator(nil)
	for i, want := range []histogram.CounterResetHint{histogram.UnknownCounterReset, histogram.NotCounterReset,
		histogram.UnknownCounterReset, histogram.NotCounterReset} {
		it.Next()
		if _, h := it.AtFloatHistogram(nil); h.CounterResetHint != want {
			t.Errorf("sample %d: hint %v, want %v", i, h.CounterResetHint, want)
		}
	}
}
