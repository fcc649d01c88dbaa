// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"encoding/binary"
	"errors"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// Samplers of the TCP sockets of the network namespace, as the kernel lists
// them (sock_diag(7)).
const (
	tcpSockets = "tcp_sockets"
	tcpListen  = "tcp_listen"
)

var (
	tcpConnections = gaugeOf(tcpSockets, "tcp_connections", metric.None, "TCP sockets by state (RFC 9293), half-open ones in syn_recv", "family", "state")

	tcpListenColumns = []column{
		{desc: gaugeOf(tcpListen, "tcp_listen_backlog", metric.None, "connections that wait to be accepted, by the port", "port")},
		{desc: gaugeOf(tcpListen, "tcp_listen_backlog_limit", metric.None, "connections that may wait to be accepted, by the port", "port")},
	}
)

// tcpStates are the values of the label state by the kernel's numbers
// (include/net/tcp_states.h).
var tcpStates = [...]string{1: "established", "syn_sent", "syn_recv", "fin_wait1", "fin_wait2", "time_wait",
	"close", "close_wait", "last_ack", "listen", "closing"}

const (
	stateListen = 10
	// allStates is the kernel's mask of all states but those of sockets
	// that are bound and nothing more (Linux 6.8). Half-open connections
	// are 12 there and told as syn_recv.
	allStates = 1<<13 - 2
)

// tcpDiag lists TCP sockets.
type tcpDiag struct {
	netlink *netlink
	request []byte
}

// families are the values of the label family.
var families = [...]struct {
	number byte
	name   string
}{{unix.AF_INET, "ipv4"}, {unix.AF_INET6, "ipv6"}}

func openTCPDiag(limit time.Duration) (*tcpDiag, error) {
	n, err := openNetlink(unix.NETLINK_SOCK_DIAG, limit)
	d := &tcpDiag{n, make([]byte, unix.NLMSG_HDRLEN+diagRequestSize)}
	if err == nil {
		err = d.list(1<<stateListen, func([]byte) {})
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, errors.Join(source.Unsupported("%w; it needs CONFIG_INET_TCP_DIAG (modprobe tcp_diag)", err), n.Close())
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return d, nil
}

// Sizes of struct inet_diag_req_v2 and struct inet_diag_msg, and where in the
// latter what is (include/uapi/linux/inet_diag.h).
const (
	diagRequestSize = 56
	diagSize        = 72
	diagPort        = 4
	diagReceive     = 56
	diagTransmit    = 60
)

// list hands each socket in one of the states to each.
func (d *tcpDiag) list(states uint32, each func(b []byte)) error {
	for _, family := range families {
		r := d.request[unix.NLMSG_HDRLEN:]
		clear(r)
		r[0], r[1] = family.number, unix.IPPROTO_TCP
		binary.NativeEndian.PutUint32(r[4:], states)
		if err := d.netlink.list(unix.SOCK_DIAG_BY_FAMILY, d.request, each); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the socket.
func (d *tcpDiag) Close() error { return d.netlink.Close() }

// tcpCount is the source of how many TCP sockets are in which state.
type tcpCount struct {
	diag       *tcpDiag
	each       func(b []byte) // c.count
	schema     *metric.Schema
	counts     [len(families)][len(tcpStates)]uint64
	begin, end int64 // of the list that counts are of
	next       int64 // Mono before which there is no other
}

// tcpShare bounds the time that listing the sockets takes, to one part in so
// many: a host with a million of them is listed less often than Every.
const tcpShare = 100

func openTCPCount() (*tcpCount, error) {
	diag, err := openTCPDiag(10 * time.Second)
	if err != nil {
		return nil, err
	}
	c := &tcpCount{diag: diag}
	c.each = c.count
	var series []metric.Series
	for _, family := range families {
		for _, state := range tcpStates[1:] {
			series = append(series, metric.Series{Desc: tcpConnections, Values: []string{family.name, state}})
		}
	}
	if c.schema, err = metric.NewSchema(tcpSockets, series); err != nil {
		return nil, errors.Join(err, diag.Close())
	}
	return c, nil
}

// Name is "tcp_sockets".
func (c *tcpCount) Name() string { return tcpSockets }

// Read fills f without allocating. If it is not yet time for another list, f
// is that of the last one: its Begin and End say when that was.
func (c *tcpCount) Read(f *metric.Frame) error {
	if now := host.Mono(); now >= c.next {
		c.counts = [len(families)][len(tcpStates)]uint64{}
		c.begin = now
		err := c.diag.list(allStates, c.each)
		c.end = host.Mono()
		if c.next = c.end + tcpShare*(c.end-c.begin); err != nil {
			c.next = 0
			return err
		}
	}
	f.Schema, f.Begin, f.End, f.Lost = c.schema, c.begin, c.end, 0
	f.Resize(c.schema.Words)
	to := f.Values[:0]
	for i := range c.counts {
		to = append(to, c.counts[i][1:]...)
	}
	return nil
}

func (c *tcpCount) count(b []byte) {
	if len(b) < diagSize || int(b[1]) >= len(tcpStates) {
		return
	}
	for i := range families {
		if families[i].number == b[0] {
			c.counts[i][b[1]]++
		}
	}
}

// Close closes the socket.
func (c *tcpCount) Close() error { return c.diag.Close() }

// maxPorts bounds the ports that are shown one by one.
const maxPorts = 64

// tcpBacklog is the source of the accept queues of listening sockets. Sockets
// that share a port, be it by address, family or SO_REUSEPORT, are summed.
type tcpBacklog struct {
	diag   *tcpDiag
	each   func(b []byte) // t.add
	roster roster
	port   []byte // scratch
}

func openTCPBacklog(limit int) (*tcpBacklog, error) {
	diag, err := openTCPDiag(time.Second)
	if err != nil {
		return nil, err
	}
	t := &tcpBacklog{diag: diag, roster: roster{source: tcpListen, columns: tcpListenColumns, key: "port", limit: limit,
		look: func(d *device) { d.label = d.id }}}
	t.each = t.add
	return t, nil
}

// Name is "tcp_listen".
func (t *tcpBacklog) Name() string { return tcpListen }

// Read fills f, without allocating while the same ports are listened on. The
// kernel goes through its table of listening sockets alone for it.
func (t *tcpBacklog) Read(f *metric.Frame) error {
	t.roster.begin()
	f.Begin = host.Mono()
	err := t.diag.list(1<<stateListen, t.each)
	f.End = host.Mono()
	if err != nil {
		return err
	}
	return t.roster.end(f)
}

func (t *tcpBacklog) add(b []byte) {
	if len(b) < diagSize || b[1] != stateListen {
		return
	}
	t.port = strconv.AppendUint(t.port[:0], uint64(binary.BigEndian.Uint16(b[diagPort:])), 10)
	d := t.roster.see(t.port)
	// Of a listening socket these are its queue's length and limit
	// (net/ipv4/tcp_diag.c, tcp_diag_get_info).
	d.now[0] += uint64(binary.NativeEndian.Uint32(b[diagReceive:]))
	d.now[1] += uint64(binary.NativeEndian.Uint32(b[diagTransmit:]))
}

// Close closes the socket.
func (t *tcpBacklog) Close() error { return t.diag.Close() }

func tcpSamplers() []source.Sampler {
	return []source.Sampler{
		{Name: tcpSockets, Reads: "sock_diag", Needs: "CONFIG_INET_TCP_DIAG", Every: 15 * time.Second, Blocking: true,
			Descs: []*metric.Desc{tcpConnections},
			Open:  func() (source.Source, error) { return openTCPCount() }},
		{Name: tcpListen, Reads: "sock_diag", Needs: "CONFIG_INET_TCP_DIAG", Descs: columnDescs(tcpListenColumns),
			Open: func() (source.Source, error) { return openTCPBacklog(maxPorts) }},
	}
}
