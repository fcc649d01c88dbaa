// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"rezolus/internal/agent"
	"rezolus/internal/analyze"
	"rezolus/internal/host"
	"rezolus/internal/metric"
)

// ledgerInterval is how often the books are balanced.
const ledgerInterval = 10 * time.Second

// openLedger opens the source of what does not agree.
func (h *house) openLedger() {
	on := h.config.Enabled(ledger)
	if on {
		h.ledger = analyze.NewLedger(host.Mono)
		h.sources = append(h.sources, reading{h.ledger, agent.SourceOptions{Every: h.pace(ledger, ledgerInterval)}})
	}
	h.judge(ledger, on, "the agent's own ticks", nil)
}

// balance shows the ledger the agent's ticks, every now and then, until the
// agent ends. It is nil where there is no ledger.
func (h *house) balance(a *agent.Agent) (func() error, error) {
	if h.ledger == nil {
		return nil, nil
	}
	books, err := a.Subscribe("ledger", h.pace(ledger, ledgerInterval), 1)
	if err != nil {
		return nil, err
	}
	return func() error {
		return books.Each(func(s *metric.Snapshot) error {
			h.ledger.Observe(s)
			return nil
		})
	}, nil
}
