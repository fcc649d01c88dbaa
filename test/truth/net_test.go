// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/bpf"
	"rezolus/internal/hist"
	"rezolus/internal/host"
	"rezolus/test/workload"
)

// told waits until the events of an interface are told apart: it is published
// once something was counted for it.
func (m *meter) told(name string, poke func()) {
	m.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		poke()
		for series := range m.read() {
			if strings.Contains(series, "interface="+name) {
				return
			}
		}
	}
	m.t.Fatalf("interface %s got no slot", name)
}

// everywhere adds up the interfaces' series of a metric with one more label.
func (r reading) everywhere(name, label string) (n uint64) {
	for k, words := range r {
		if strings.HasPrefix(k, name+"{") && strings.Contains(k, label) {
			for _, w := range words {
				n += w
			}
		}
	}
	return n
}

var discard = uint16(9) // a port that nobody listens at (RFC 863)

// veth gives the test a veth pair whose events are told apart.
func veth(t *testing.T, m *meter) *workload.Link {
	t.Helper()
	link := workload.NewVeth(t, workload.NewNamespace(t))
	from := workload.NewSocket(unix.SOCK_DGRAM, link.Local)
	defer from.Close()
	m.told(link.Name, func() { from.SendTo(netip.AddrPortFrom(link.Peer, discard), 1) })
	return link
}

const ethernet, ip, udp = 14, 20, 8 // bytes of headers

func TestPacketsAreCountedByInterface(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "net/net", h, "network_traffic", "network_sizes", "network_interfaces")
		link := veth(t, m)
		var peer *workload.Socket
		link.Far(t, func() error { peer = workload.NewSocket(unix.SOCK_DGRAM, link.Peer); return nil })
		local := workload.NewSocket(unix.SOCK_DGRAM, link.Local)
		defer local.Close()
		defer peer.Close()
		of := func(name, more string) string {
			keys := []string{"interface=" + link.Name, "kind=veth"}
			if strings.HasPrefix(more, "direction") {
				keys = append([]string{more}, keys...)
			}
			return name + "{" + strings.Join(keys, ",") + "}"
		}
		driver := func() [4]uint64 {
			return [4]uint64{link.Statistic(t, "tx_bytes"), link.Statistic(t, "tx_packets"),
				link.Statistic(t, "rx_bytes"), link.Statistic(t, "rx_packets")}
		}
		before, counted := m.read(), driver()
		for range 101 {
			local.SendTo(peer.Addr, 1009)
			peer.Receive(1009)
		}
		for range 37 {
			peer.SendTo(local.Addr, 503)
			local.Receive(503)
		}
		d := m.read().since(before)
		const sent, received = 1009 + ethernet + ip + udp, 503 + ethernet + ip + udp
		for direction, want := range map[string]struct{ packets, bytes uint64 }{
			"direction=transmit": {101, 101 * sent}, "direction=receive": {37, 37 * received},
		} {
			d.want(t, of("network_packets", direction), want.packets)
			d.want(t, of("network_bytes", direction), want.bytes)
		}
		for i, n := range driver() {
			counted[i] = n - counted[i]
		}
		if want := [4]uint64{101 * sent, 101, 37 * received, 37}; counted != want {
			t.Errorf("the driver counted %v, want %v", counted, want)
		}
		d.want(t, of("network_transmit_complete", ""), 101)
		d.want(t, of("network_transmit_busy", ""), 0)
		d.want(t, of("network_transmit_timeout", ""), 0)
		// Both ends of the pair send and receive; so may the rest of the machine.
		for _, direction := range []string{"transmit", "receive"} {
			words := d["network_size{direction="+direction+"}"]
			for size, want := range map[uint64]uint64{sent: 101, received: 37} {
				if got := words[hist.Default.Index(size)]; got < want {
					t.Errorf("%d packets of %d bytes in direction %s, want %d", got, size, direction, want)
				}
			}
		}
	})
}

// TestSegmentsArePackets: what is cut into segments after it was counted is
// counted as they are.
func TestSegmentsArePackets(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "net/net", h, "network_traffic", "network_sizes")
		link := veth(t, m)
		var peer *workload.Socket
		link.Far(t, func() error { peer = workload.NewSocket(unix.SOCK_DGRAM, link.Peer); return nil })
		local := workload.NewSocket(unix.SOCK_DGRAM, link.Local)
		defer local.Close()
		defer peer.Close()
		local.Segment(1000)
		peer.Segment(1000)
		before := m.read()
		for range 11 { // nine segments of 1000 bytes and one of 17
			local.SendTo(peer.Addr, 9017)
			peer.SendTo(local.Addr, 9017)
			for range 9 {
				local.Receive(1000)
				peer.Receive(1000)
			}
			local.Receive(17)
			peer.Receive(17)
		}
		d := m.read().since(before)
		for _, direction := range []string{"transmit", "receive"} {
			of := "{direction=" + direction + ",interface=" + link.Name + ",kind=veth}"
			d.want(t, "network_packets"+of, 110)
			d.want(t, "network_bytes"+of, 11*(9017+10*(ethernet+ip+udp)))
		}
	})
}

// TestTCPSegmentsArePackets: the bytes of a stream that TCP hands down in large
// pieces, with the headers of each segment.
func TestTCPSegmentsArePackets(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "net/net", h, "network_traffic", "network_sizes")
		link := veth(t, m)
		var listener *workload.Socket
		link.Far(t, func() error { listener = workload.Listen(link.Peer, 1); return nil })
		defer listener.Close()
		of := func(d reading, name, direction string) uint64 {
			return d.count(t, name+"{direction="+direction+",interface="+link.Name+",kind=veth}")
		}
		undisturbed(t, func(b *books) { // on a busy machine a segment is sent again
			before := m.read()
			client, server := workload.Pair(listener)
			for range 23 {
				client.Send(40_000)
				server.Receive(40_000)
			}
			d, info := m.read().since(before), client.Info()
			client.Close()
			server.Close()
			out, in := uint64(info.Segs_out), uint64(info.Segs_in)
			b.same("packets out", of(d, "network_packets", "transmit"), out)
			b.within("packets in", of(d, "network_packets", "receive"), in, in+1)
			// With the time of RFC 7323 a header has 32 bytes, that of a SYN 40.
			b.same("bytes out", of(d, "network_bytes", "transmit"), 23*40_000+out*(ethernet+ip+32)+8)
		})
	})
}

// withReasons runs a test of drops on both rungs. Before Linux 5.17 no packet is
// dropped for a reason, and there is no such metric, but for late releases of
// 5.15: there the tracepoint has the reason, and few drops have one.
func withReasons(t *testing.T, f func(t *testing.T, h bpf.Host)) {
	kernel, err := host.RunningKernel()
	if err != nil {
		t.Fatal(err)
	}
	if !kernel.AtLeast(5, 17) {
		f = func(t *testing.T, h bpf.Host) {
			all := load(t, "net/net", h, "network_drops").probe.Status()
			s := all[slices.IndexFunc(all, func(s bpf.SamplerStatus) bool { return s.Name == "network_drops" })]
			if s.State != bpf.Healthy && (s.State != bpf.Unsupported || !strings.Contains(s.Reason, "fewer arguments")) {
				t.Errorf("it is %s: %s", s.State, s.Reason)
			}
		}
	}
	rungs(t, f)
}

// TestPacketsAreDroppedForAReason lets packets come to an end in known ways.
func TestPacketsAreDroppedForAReason(t *testing.T) {
	withReasons(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "net/net", h, "network_drops", "network_interfaces", "network_traffic", "network_sizes")
		const room = 7
		tun := workload.NewTun(t, room)
		local := workload.NewSocket(unix.SOCK_DGRAM, tun.Local)
		defer local.Close()
		m.told(tun.Name, func() { tun.Arrive(t, 1, tun.Datagram(discard, 1)) })
		tun.Take(t) // the answers: nobody listens at the port
		before := m.read()

		badSum, badHeader := tun.Datagram(discard, 1), tun.Datagram(discard, 1)
		badSum[10]++
		badHeader[0]-- // too short for a header
		local.Refuse()
		tun.Arrive(t, 5, badSum)
		tun.Arrive(t, 3, badHeader)
		tun.Arrive(t, 17, tun.Datagram(local.Addr.Port(), 100))
		for range 20 {
			local.SendTo(netip.AddrPortFrom(tun.Peer, discard), 1)
		}
		d := m.read().since(before)
		of := func(name, label string) string {
			if strings.HasPrefix(label, "reason") {
				return name + "{interface=" + tun.Name + ",kind=tun," + label + "}"
			}
			return name + "{" + label + "interface=" + tun.Name + ",kind=tun}"
		}
		d.want(t, of("network_drop", "reason=checksum"), 5)
		d.want(t, of("network_drop", "reason=format"), 3)
		d.want(t, of("network_discard", "reason=filter"), 17)
		d.want(t, of("network_drop", "reason=device"), 20-room)
		d.want(t, of("network_transmit_busy", ""), 20-room)
		d.want(t, of("network_transmit_complete", ""), room)
		d.want(t, of("network_packets", "direction=receive,"), 5+3+17)
		d.want(t, of("network_bytes", "direction=receive,"), (5+3)*(ip+udp+1)+17*(ip+udp+100))
		for _, reason := range []string{"route", "memory", "qdisc", "neighbour", "backlog", "socket_buffer"} {
			d.want(t, of("network_drop", "reason="+reason), 0)
		}
		for _, reason := range []string{"netfilter", "tcp", "unspecified", "other"} {
			d.want(t, of("network_discard", "reason="+reason), 0)
		}

		before = m.read()
		tun.Arrive(t, 13, tun.Datagram(discard, 1))
		d = m.read().since(before)
		d.want(t, of("network_discard", "reason=no_socket"), 13)
	})
}

func TestAFullSocketDrops(t *testing.T) {
	withReasons(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "net/net", h, "network_drops", "network_sizes")
		undisturbed(t, func(b *books) {
			to := workload.NewSocket(unix.SOCK_DGRAM, workload.Loopback)
			from := workload.NewSocket(unix.SOCK_DGRAM, workload.Loopback)
			defer to.Close()
			defer from.Close()
			to.Shrink()
			before := m.read()
			for range 101 {
				from.SendTo(to.Addr, 100)
			}
			d := m.read().since(before)
			b.same("network_drop for a full socket", d.everywhere("network_drop", "reason=socket_buffer"), uint64(101-to.Drain()))
		})
	})
}

func TestAFirewallDrops(t *testing.T) {
	kernel, err := host.RunningKernel()
	if err != nil {
		t.Fatal(err)
	}
	if !kernel.AtLeast(6, 4) {
		t.Skip("netfilter takes programs since Linux 6.4")
	}
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "net/net", h, "network_drops", "network_sizes")
		link := workload.NewVeth(t, workload.NewNamespace(t))
		link.FarFirewall(t)
		from := workload.NewSocket(unix.SOCK_DGRAM, link.Local)
		defer from.Close()
		undisturbed(t, func(b *books) {
			before := m.read()
			for range 17 {
				from.SendTo(netip.AddrPortFrom(link.Peer, discard), 100)
			}
			var d reading // the peer receives in a softirq of its own
			for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
				if d = m.read().since(before); d.everywhere("network_discard", "reason=netfilter") >= 17 {
					break
				}
			}
			b.same("network_discard of the firewall", d.everywhere("network_discard", "reason=netfilter"), 17)
			b.same("network_discard without a socket", d.everywhere("network_discard", "reason=no_socket"), 0)
		})
	})
}

func TestPacketsToNobodyAreDropped(t *testing.T) {
	withReasons(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "net/net", h, "network_drops", "network_traffic", "network_sizes")
		link := veth(t, m)
		link.Hurry(t)
		from := workload.NewSocket(unix.SOCK_DGRAM, link.Local)
		defer from.Close()
		before := m.read()
		for range 3 { // they wait until the kernel has asked in vain
			from.SendTo(netip.AddrPortFrom(link.Nobody, discard), 100)
		}
		series := "network_drop{interface=" + link.Name + ",kind=veth,reason=neighbour}"
		d := completed(t, m, before, series, 3)
		d.want(t, series, 3)
	})
}
