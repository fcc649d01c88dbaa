// SPDX-License-Identifier: Apache-2.0

package gather

import "rezolus/internal/metric"

// sampler is the name of what a recorder says of itself, and of its source.
const sampler = "recorder"

var keys = []string{"endpoint", "source"}

var (
	endpointUp = &metric.Desc{Name: "recorder_endpoint_up", Help: "1 while an endpoint of a recording is read, else 0",
		Kind: metric.Gauge, Keys: keys, Sampler: sampler}
	endpointTicks = &metric.Desc{Name: "recorder_endpoint_ticks", Help: "ticks and scrapes of an endpoint that are in a recording",
		Kind: metric.Counter, Keys: keys, Sampler: sampler}
	endpointMissed = &metric.Desc{Name: "recorder_endpoint_missed", Help: "ticks of an endpoint that were due and are not in a recording",
		Kind: metric.Counter, Keys: keys, Sampler: sampler}
	endpointReturns = &metric.Desc{Name: "recorder_endpoint_returns", Help: "times that an endpoint of a recording came back",
		Kind: metric.Counter, Keys: keys, Sampler: sampler}
)

// Descs describe the metrics that a recording of several endpoints has of
// them.
func Descs() []*metric.Desc {
	return []*metric.Desc{endpointUp, endpointTicks, endpointMissed, endpointReturns}
}

// self is how the endpoints fare.
type self struct {
	schema *metric.Schema
	words  []uint64
}

func (s *self) init(ends []*end, start int64) (err error) {
	var series []metric.Series
	for _, e := range ends {
		for _, d := range Descs() {
			x := metric.Series{Desc: d, Values: []string{e.Name, e.Source}}
			if d.Kind == metric.Counter {
				x.Start = start
			}
			series = append(series, x)
		}
	}
	s.schema, err = metric.NewSchema(sampler, series)
	return err
}

func (s *self) frame(ends []*end, mono int64) metric.Frame {
	s.words = s.words[:0]
	for _, e := range ends {
		up := uint64(0)
		if e.came && !e.down {
			up = 1
		}
		s.words = append(s.words, up, e.ticks, e.missed, e.returns)
	}
	return metric.Frame{Schema: s.schema, Begin: mono, End: mono, Values: s.words}
}
