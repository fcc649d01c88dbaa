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

// balance shows the ledger a tick every now and then.
func (h *house) balance(sub *agent.Subscription) error {
	return sub.Each(func(s *metric.Snapshot) error {
		h.ledger.Observe(s)
		return nil
	})
}
