// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"testing"

	"golang.org/x/sys/unix"

	"rezolus/internal/bpf"
	"rezolus/test/workload"
)

func TestUDPBytesAreCounted(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := sockets(t, h, "udp_traffic", "tcp_traffic")
		if m == nil {
			return
		}
		c := m.cgroup("udp")
		undisturbed(t, func(b *books) {
			before := m.read()
			c.Thread(t, func() {
				from := workload.NewSocket(unix.SOCK_DGRAM, workload.Loopback)
				to := workload.NewSocket(unix.SOCK_DGRAM, workload.Loopback)
				for range 101 {
					from.SendTo(to.Addr, 1009)
					to.Peek(1009) // left where it is, and not counted
					to.Receive(1009)
				}
				for range 7 {
					from.SendTo(to.Addr, 0)
					to.Receive(0)
				}
				from.SendTo(to.Addr, 503) // never received
				from.Close()
				to.Close()
			})
			d := m.read().since(before)
			of := func(direction string) string {
				return "cgroup_udp_bytes{direction=" + direction + ",name=" + c.Path + "}"
			}
			d.want(t, of("transmit"), 101*1009+503)
			d.want(t, of("receive"), 101*1009)
			b.want(d, "udp_bytes{direction=transmit}", 101*1009+503)
			b.want(d, "udp_bytes{direction=receive}", 101*1009)
			b.want(d, "udp_packets{direction=transmit}", 101+7+1)
			b.want(d, "udp_packets{direction=receive}", 101+7)
			for _, direction := range []string{"transmit", "receive"} {
				b.bucket(d, "udp_size{direction="+direction+"}", 1009, 101)
				b.bucket(d, "udp_size{direction="+direction+"}", 0, 7)
			}
			b.bucket(d, "udp_size{direction=transmit}", 503, 1)
			d.want(t, "cgroup_tcp_bytes{direction=transmit,name="+c.Path+"}", 0)
		})
	})
}

// TestDatagramsAreCountedOfBothFamilies: on kernels before 6.3 each family has
// a function of its own that sends.
func TestDatagramsAreCountedOfBothFamilies(t *testing.T) {
	m := sockets(t, machine(), "udp_traffic", "tcp_traffic")
	if m == nil {
		return
	}
	c := m.cgroup("udp6")
	before := m.read()
	c.Thread(t, func() { workload.Datagrams6(17, 101) })
	d := m.read().since(before)
	d.want(t, "cgroup_udp_bytes{direction=transmit,name="+c.Path+"}", 17*101)
	d.want(t, "cgroup_udp_bytes{direction=receive,name="+c.Path+"}", 17*101)
}

func TestDatagramsThatFindNoRoomAreCounted(t *testing.T) {
	rungs(t, func(t *testing.T, h bpf.Host) {
		m := startSome(t, "sock/sock", h, "udp_drops")
		undisturbed(t, func(b *books) {
			from := workload.NewSocket(unix.SOCK_DGRAM, workload.Loopback)
			to := workload.NewSocket(unix.SOCK_DGRAM, workload.Loopback)
			defer from.Close()
			defer to.Close()
			to.Shrink()
			before := m.read()
			for range 101 {
				from.SendTo(to.Addr, 100)
			}
			d, dropped := m.read().since(before), 101-uint64(to.Drain())
			if dropped == 0 {
				t.Fatal("a small buffer held 101 datagrams")
			}
			b.want(d, "udp_receive_drops{reason=buffer}", dropped)
			b.want(d, "udp_receive_drops{reason=memory}", 0)
		})
	})
}
