// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rezolus/internal/bpf"
	"rezolus/internal/hist"
	"rezolus/internal/host"
	"rezolus/test/workload"
)

// sockets loads the probe with samplers that need to see what sockets send and
// receive. Before 6.3 that takes functions of the kernel, and its types; where
// they cannot be had the status must say so, and the result is nil.
func sockets(t *testing.T, h bpf.Host, samplers ...string) *meter {
	t.Helper()
	kernel, err := host.RunningKernel()
	if err != nil {
		t.Fatal(err)
	}
	if kernel.AtLeast(6, 3) {
		return startSome(t, "sock/sock", h, samplers...)
	}
	m, functions := load(t, "sock/sock", h, samplers...), h.KernelBTF && trampolines(kernel)
	for _, s := range m.probe.Status() {
		if slices.Contains(samplers, s.Name) && (s.State == bpf.Healthy) != functions {
			t.Fatalf("sampler %s is %s: %s", s.Name, s.State, s.Reason)
		}
	}
	if !functions {
		return nil
	}
	return m
}

// trampolines tells whether programs can attach to functions: arm64 got its
// direct calls from ftrace with 6.4.
func trampolines(kernel host.Kernel) bool {
	return runtime.GOARCH == "amd64" || kernel.AtLeast(6, 4)
}

func TestTCPBytesAreCounted(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := sockets(t, h, "tcp_traffic", "udp_traffic")
		if m == nil {
			return
		}
		c := m.cgroup("tcp")
		undisturbed(t, func(b *books) {
			before := m.read()
			c.Thread(t, func() {
				listener := workload.Listen(workload.Loopback, 1)
				client, server := workload.Pair(listener)
				for range 101 {
					client.Send(1009)
					server.Peek(1009) // left where it is, and not counted
					server.Receive(1009)
				}
				for range 37 {
					server.Send(503)
				}
				client.Receive(37 * 503)
				client.Close()
				server.Close()
				listener.Close()
			})
			d := m.read().since(before)
			of := func(name, direction string) string { return name + "{direction=" + direction + ",name=" + c.Path + "}" }
			d.want(t, of("cgroup_tcp_bytes", "transmit"), 101*1009+37*503)
			d.want(t, of("cgroup_tcp_bytes", "receive"), 101*1009+37*503)
			d.want(t, of("cgroup_udp_bytes", "receive"), 0)
			b.want(d, "tcp_bytes{direction=transmit}", 101*1009+37*503)
			b.want(d, "tcp_bytes{direction=receive}", 101*1009+37*503)
			b.want(d, "tcp_packets{direction=transmit}", 101+37)
			b.want(d, "tcp_packets{direction=receive}", 101+1)
			b.bucket(d, "tcp_size{direction=transmit}", 1009, 101)
			b.bucket(d, "tcp_size{direction=transmit}", 503, 37)
			b.bucket(d, "tcp_size{direction=receive}", 1009, 101)
			b.bucket(d, "tcp_size{direction=receive}", 37*503, 1)
		})
	})
}

func TestRoundTripsAreThoseOfTheConnection(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "sock/sock", h, "tcp_receive")
		undisturbed(t, func(b *books) {
			listener := workload.Listen(workload.Loopback, 1)
			defer listener.Close()
			before := m.read()
			client, server := workload.Pair(listener)
			defer client.Close()
			defer server.Close()
			expected := map[string]map[int]bool{"tcp_srtt": {}, "tcp_jitter": {}}
			note := func() {
				info := client.Info()
				expected["tcp_srtt"][hist.Default.Index(uint64(info.Rtt)*1000)] = true
				expected["tcp_jitter"][hist.Default.Index(uint64(info.Rttvar)*1000)] = true
			}
			for range 101 {
				note()
				client.Send(1009)
				server.Receive(1009)
				server.Send(1)
				client.Receive(1)
			}
			// Each segment but those of the handshake: one at the client, and
			// at the server the SYN, which its count begins with, and the last.
			segments := uint64(client.Info().Segs_in) - 1 + uint64(server.Info().Segs_in) - 2
			d := m.read().since(before)
			for name, buckets := range expected {
				b.want(d, name, segments)
				for i := range buckets {
					if d[name][i] == 0 {
						b.same(name+" where TCP_INFO was", 0, 1)
					}
				}
			}
		})
	})
}

func TestDataWaitsToBeRead(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := sockets(t, h, "tcp_packet_latency")
		if m == nil {
			return
		}
		listener := workload.Listen(workload.Loopback, 1)
		defer listener.Close()
		// A moment in which nobody else reads is short.
		undisturbed(t, func(b *books) {
			before := m.read()
			client, server := workload.Pair(listener)
			for range 13 {
				client.Send(100)
				server.Receive(100)
			}
			client.Send(100) // never read
			client.Close()
			server.Close()
			d := m.read().since(before)
			if got := d.count(t, "tcp_packet_latency"); got < 13 {
				t.Errorf("%d waits, want 13 or more", got)
			}
			b.want(d, "tcp_packet_latency", 13)
			b.want(d, "tcp_packet_discarded_samples", 0)
		})
		undisturbed(t, func(b *books) {
			before := m.read()
			client, server := workload.Pair(listener)
			for range 7 {
				client.Send(100)
				client.Send(100) // does not begin the wait anew
				time.Sleep(20 * time.Millisecond)
				server.Peek(200)
				server.Receive(200)
			}
			client.Close()
			server.Close()
			waits := m.read().since(before)["tcp_packet_latency"]
			b.same("waits of 20 ms and more", above(waits, 20*ms), 7)
			b.same("waits of 60 ms and more", above(waits, 60*ms), 0)
		})
	})
}

// above is how many values of a histogram lie in the bucket of v or above it.
func above(words []uint64, v uint64) (n uint64) {
	for i, w := range words {
		if i >= hist.Default.Index(v) {
			n += w
		}
	}
	return n
}

func TestConnectsEndInFiveWays(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "sock/sock", h, "tcp_connect_latency", "tcp_retransmit", "tcp_reset")
		link := workload.NewVeth(t, workload.NewNamespace(t))
		link.Hurry(t)
		t.Run("soon", func(t *testing.T) { undisturbed(t, func(b *books) { endSoon(t, m, b) }) })
		t.Run("late", func(t *testing.T) { undisturbed(t, func(b *books) { endLate(t, m, b, link) }) })
	})
}

// endSoon makes connections, and tries to where nobody listens.
func endSoon(t *testing.T, m *meter, b *books) {
	listener, closed := workload.Listen(workload.Loopback, 0), workload.NewSocket(unix.SOCK_STREAM, workload.Loopback)
	defer listener.Close()
	defer closed.Close()
	before := m.read()
	for range 23 {
		client, server := workload.Pair(listener)
		client.Close()
		server.Close()
	}
	for range 19 {
		if _, err := workload.Dial(closed.Addr); !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatalf("connect to a closed port: %v", err)
		}
	}
	d := m.read().since(before)
	for result, want := range map[string]uint64{"success": 23, "refused": 19, "other": 0} {
		b.want(d, "tcp_connect_latency{result="+result+"}", want)
	}
	b.want(d, "tcp_reset{direction=receive}", 19)
	b.want(d, "tcp_connect_discarded_samples", 0)
}

// endLate tries to connect to nobody and to one who does not accept, which
// takes seconds: the machine makes other connections meanwhile, but none that
// end so.
func endLate(t *testing.T, m *meter, b *books, link *workload.Link) {
	listener := workload.Listen(workload.Loopback, 0)
	before := m.read()
	if _, err := workload.Dial(netip.AddrPortFrom(link.Nobody, 9)); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Fatalf("connect to nobody: %v", err)
	}
	full, err := workload.Dial(listener.Addr) // the one connection that may wait
	if err != nil {
		t.Fatal(err)
	}
	if _, err := workload.Dial(listener.Addr, workload.GiveUp); !errors.Is(err, unix.ETIMEDOUT) {
		t.Fatalf("connect to a full listener: %v", err)
	}
	for range 5 {
		abandoned, err := workload.Dial(listener.Addr, workload.NoWait)
		if err != nil {
			t.Fatal(err)
		}
		abandoned.Close()
	}
	full.Close()
	listener.Close() // resets the connection that was never accepted
	d := m.read().since(before)
	for result, want := range map[string]uint64{"unreachable": 1, "timed_out": 1, "abandoned": 5} {
		b.want(d, "tcp_connect_latency{result="+result+"}", want)
	}
	b.same("time-outs after a second", above(d["tcp_connect_latency{result=timed_out}"], 1000*ms), 1)
	b.same("refusals after a second", above(d["tcp_connect_latency{result=refused}"], 1000*ms), 0)
	b.want(d, "tcp_retransmit{kind=syn}", 1)
	if resets := d.count(t, "tcp_reset{direction=receive}"); resets == 0 {
		b.errorf("the reset of the connection that was never accepted was not counted")
	}
}

func TestResetsAreCounted(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "sock/sock", h, "tcp_reset")
		undisturbed(t, func(b *books) {
			before := m.read()
			listener := workload.Listen(workload.Loopback, 1)
			for range 13 {
				client, server := workload.Pair(listener)
				client.Abort()
				server.Close()
			}
			listener.Close()
			d := m.read().since(before)
			b.want(d, "tcp_reset{direction=transmit}", 13)
			b.want(d, "tcp_reset{direction=receive}", 13)
		})
	})
}

func TestConnectionsWaitForAccept(t *testing.T) {
	kernel, err := host.RunningKernel()
	if err != nil {
		t.Fatal(err)
	}
	if !trampolines(kernel) {
		unsupported(t, "sock/sock", machine(), "tcp_accept")
		return
	}
	m := function(t, "sock/sock", machine(), "tcp_accept")
	if m == nil {
		return
	}
	undisturbed(t, func(b *books) {
		before := m.read()
		listener := workload.Listen(workload.Loopback, 20)
		var clients []*workload.Socket
		for range 11 {
			client, err := workload.Dial(listener.Addr)
			if err != nil {
				t.Fatal(err)
			}
			clients = append(clients, client)
		}
		time.Sleep(20 * time.Millisecond)
		for _, client := range clients {
			listener.Accept().Close()
			client.Close()
		}
		listener.Close()
		d := m.read().since(before)
		b.want(d, "tcp_accept_latency", 11)
		b.same("waits of 20 ms and more", above(d["tcp_accept_latency"], 20*ms), 11)
		for left := range uint64(11) {
			b.bucket(d, "tcp_accept_backlog", left, 1)
		}
		b.want(d, "tcp_accept_discarded_samples", 0)
	})
}

// TestWhatIsLostIsSentAgain sends to a station that is not there for a while.
func TestWhatIsLostIsSentAgain(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "sock/sock", h, "tcp_retransmit")
		link := workload.NewVeth(t, workload.NewNamespace(t))
		var listener *workload.Socket
		link.Far(t, func() error { listener = workload.Listen(link.Peer, 1); return nil })
		defer listener.Close()
		// retransmissions of a new connection that loses what lose does, by kind
		lost := func(b *books, lose func(client, server *workload.Socket)) map[string]uint64 {
			client, server := workload.Pair(listener)
			defer client.Close()
			defer server.Close()
			before, kinds, sum := m.read(), map[string]uint64{}, uint64(0)
			lose(client, server)
			d, again := m.read().since(before), uint64(client.Info().Total_retrans)
			for _, kind := range []string{"syn", "synack", "timeout", "fast", "probe"} {
				kinds[kind] = d.count(t, "tcp_retransmit{kind="+kind+"}")
				sum += kinds[kind]
			}
			b.same("retransmissions", sum, again)
			return kinds
		}
		t.Run("all", func(t *testing.T) {
			undisturbed(t, func(b *books) {
				kinds := lost(b, func(client, server *workload.Socket) {
					link.Misdirect(t, true)
					client.Send(1009)
					time.Sleep(700 * time.Millisecond) // time-outs after 200 and 400 ms
					link.Misdirect(t, false)
					server.Receive(1009)
				})
				if kinds["timeout"] < 2 || kinds["probe"] > 1 {
					b.same("retransmissions after a time-out", kinds["timeout"], 2)
				}
				b.same("others", kinds["syn"]+kinds["synack"]+kinds["fast"], 0)
			})
		})
		t.Run("one of many", func(t *testing.T) {
			undisturbed(t, func(b *books) {
				kinds := lost(b, func(client, server *workload.Socket) {
					link.Misdirect(t, true)
					client.Send(1009)
					link.Misdirect(t, false)
					for range 9 {
						client.Send(1009)
					}
					server.Receive(10 * 1009)
				})
				b.same("fast retransmissions", kinds["fast"], 1)
			})
		})
		t.Run("answer to a SYN", func(t *testing.T) {
			undisturbed(t, func(b *books) {
				before, counted := m.read(), link.FarNetstat(t, "TCPSynRetrans")
				link.MisdirectBack(t, true)
				if _, err := workload.Dial(listener.Addr, workload.GiveUp); !errors.Is(err, unix.ETIMEDOUT) {
					t.Fatalf("connect without an answer: %v", err)
				}
				link.MisdirectBack(t, false)
				d := m.read().since(before)
				b.want(d, "tcp_retransmit{kind=syn}", 1)
				answers := link.FarNetstat(t, "TCPSynRetrans") - counted
				b.want(d, "tcp_retransmit{kind=synack}", answers)
				if answers == 0 {
					b.same("answers sent again", answers, 1)
				}
			})
		})
	})
}
