// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
)

// stats reads the answer to the command stats of memcached (doc/protocol.txt
// there, "General-purpose statistics") and of Pelikan, which is the same form:
// lines "STAT name value" and END. Values that are no numbers are passed over.
type stats struct{ *table }

var (
	statPrefix = []byte("STAT ")
	statEnd    = []byte("END")
)

func (p *stats) parse(body []byte) error {
	for len(body) > 0 {
		line, rest, _ := bytes.Cut(body, newline)
		line = trim(line)
		body = rest
		if bytes.Equal(line, statEnd) {
			return nil
		}
		text, ok := bytes.CutPrefix(line, statPrefix)
		if !ok {
			return fmt.Errorf("%.60q; want STAT name value", line)
		}
		name, value := token(text)
		r, ok := parseReading(value)
		if !ok || p.quick(name, r) {
			continue
		}
		d := declared{kind: gauge, help: "of the command stats"}
		if countsUp(string(name)) {
			d.kind = counter
		}
		p.add(name, string(name), d, nil, r)
	}
	return errors.New("no END")
}

// counting are the stats that only grow; all others are gauges. Names that end
// in * stand for all that begin so.
var counting = strings.Fields(`
	auth_cmds auth_errors bytes_read bytes_written cas_badval cas_hits cas_misses cmd_* conn_yields
	crawler_items_checked crawler_reclaimed decr_hits decr_misses delete_hits delete_misses direct_reclaims
	evicted_active evicted_unfetched evictions expired_unfetched get_expired get_flushed get_hits get_misses
	idle_kicks incr_hits incr_misses listen_disabled_num log_watcher_sent log_watcher_skipped log_worker_dropped
	log_worker_written lru_bumps_dropped lru_crawler_starts lru_maintainer_juggles lrutail_reflocked
	moves_to_cold moves_to_warm moves_within_lru proxy_conn_errors proxy_conn_oom proxy_conn_requests proxy_req_await
	read_buf_oom reclaimed rejected_connections response_obj_oom round_robin_fallback rusage_system rusage_user
	slab_reassign_busy_deletes slab_reassign_busy_items slab_reassign_chunk_rescues slab_reassign_evictions_nomem
	slab_reassign_inline_reclaim slab_reassign_rescues slabs_moved store_no_memory store_too_large
	time_in_listen_disabled_us total_connections total_items touch_hits touch_misses unexpected_napi_ids
	data_read data_written conn_total conn_yield process_req tcp_accept tcp_recv_byte tcp_send_byte
`)

func countsUp(name string) bool {
	for _, c := range counting {
		begin, more := strings.CutSuffix(c, "*")
		if name == c || more && strings.HasPrefix(name, begin) {
			return true
		}
	}
	return false
}

// memcache asks for the stats on a connection of its own: one that were kept
// would be found dead after the next restart of the server.
type memcache struct{ address string }

var errRefused = errors.New("the server refuses the command stats")

func (m *memcache) fetch(ctx context.Context, buf []byte, limit int) ([]byte, error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", m.address)
	if err != nil {
		return buf, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if _, err := c.Write([]byte("stats\r\n")); err != nil {
		return buf, err
	}
	checked := 0
	for {
		if buf, err = grow(buf, limit); err != nil {
			return buf, err
		}
		n, err := c.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		for {
			end := bytes.IndexByte(buf[checked:], '\n')
			if end < 0 {
				break
			}
			line := trim(buf[checked : checked+end])
			checked += end + 1
			if bytes.Equal(line, statEnd) {
				return buf[:checked], nil
			}
			if bytes.HasSuffix(line, []byte("ERROR")) || bytes.Contains(line, []byte("_ERROR ")) {
				return buf, fmt.Errorf("%w: %.60q", errRefused, line)
			}
		}
		if err != nil {
			return buf, err
		}
	}
}
