// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http/httptest"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rogpeppe/go-internal/testscript"
)

// native serves a native histogram of 1, 2, 4, 8 and -2 and a counter, as
// Prometheus's own library does: native VARIABLE.
func native(ts *testscript.TestScript, neg bool, args []string) {
	registry := client.NewRegistry()
	times := client.NewHistogram(client.HistogramOpts{Name: "rpc_seconds", Help: "Times.", NativeHistogramBucketFactor: 1.1})
	for _, v := range []float64{1, 2, 4, 8, -2} {
		times.Observe(v)
	}
	calls := client.NewCounter(client.CounterOpts{Name: "rpc_calls_total", Help: "Calls."})
	calls.Add(5)
	registry.MustRegister(times, calls)
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	ts.Defer(server.Close)
	ts.Setenv(args[0], server.URL)
}
