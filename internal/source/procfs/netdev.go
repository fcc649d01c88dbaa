// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"rezolus/internal/host"
	"rezolus/internal/metric"
	"rezolus/internal/source"
)

// netDir is where the files of the agent's network namespace are.
const netDir = "/proc/net"

// interfaces is the sampler of what the interfaces of the network namespace
// count: /proc/net/dev (net/core/net-procfs.c, dev_seq_printf_stats). The
// kernel makes it without taking the lock of the configuration (RTNL), so that
// a read never waits for whoever sets interfaces up.
const interfaces = "network_interface"

// maxInterfaces bounds the interfaces that are shown one by one.
const maxInterfaces = 256

func onInterface(name string, unit metric.Unit, help string, keys ...string) *metric.Desc {
	return counterOf(interfaces, "network_interface_"+name, unit, help, keys...)
}

var (
	interfaceBytes   = onInterface("bytes", metric.Bytes, "bytes, with link-layer headers except on loopback", "direction", "interface", "kind")
	interfacePackets = onInterface("packets", packets, "packets", "direction", "interface", "kind")
	interfaceErrors  = onInterface("errors", packets, "packets with an error of any kind, network_interface_{fifo,frame,carrier}_errors included", "direction", "interface", "kind")
	interfaceDrops   = onInterface("drops", packets, "packets dropped by the interface: for want of buffers, or on receive because no protocol took them", "direction", "interface", "kind")
	interfaceFIFO    = onInterface("fifo_errors", packets, "packets lost to an overrun of the device's own queue", "direction", "interface", "kind")
	interfaceFrame   = onInterface("frame_errors", packets, "packets received with a wrong length, checksum or framing", "interface", "kind")
	interfaceCarrier = onInterface("carrier_errors", packets, "packets not sent for loss of carrier, abort, late collision or heartbeat", "interface", "kind")
	interfaceCollide = onInterface("collisions", packets, "collisions on the medium", "interface", "kind")
	interfaceCompact = onInterface("compressed_packets", packets, "packets that were compressed (PPP, SLIP)", "direction", "interface", "kind")
	interfaceMulti   = onInterface("multicast_packets", packets, "multicast packets received, as far as the device counts them", "interface", "kind")
)

// netdevColumns are the columns of /proc/net/dev.
var netdevColumns = []column{
	{desc: interfaceBytes, value: "receive"}, {desc: interfacePackets, value: "receive"},
	{desc: interfaceErrors, value: "receive"}, {desc: interfaceDrops, value: "receive"},
	{desc: interfaceFIFO, value: "receive"}, {desc: interfaceFrame},
	{desc: interfaceCompact, value: "receive"}, {desc: interfaceMulti},
	{desc: interfaceBytes, value: "transmit"}, {desc: interfacePackets, value: "transmit"},
	{desc: interfaceErrors, value: "transmit"}, {desc: interfaceDrops, value: "transmit"},
	{desc: interfaceFIFO, value: "transmit"}, {desc: interfaceCollide},
	{desc: interfaceCarrier}, {desc: interfaceCompact, value: "transmit"},
}

// netdev is the source of /proc/net/dev.
type netdev struct {
	file   *seqFile
	roster roster
}

// openNetdev opens dev in dir, which is /proc/net or that of a task. class is
// /sys/class/net of the same network namespace.
func openNetdev(dir, class string, limit int) (*netdev, error) {
	file, err := openSeqFile(filepath.Join(dir, "dev"))
	if err != nil {
		return nil, absent(err, "a kernel with networking (CONFIG_NET)")
	}
	return &netdev{file, roster{source: interfaces, columns: netdevColumns, key: "interface", limit: limit,
		look: lookAtInterface(class)}}, nil
}

// lookAtInterface finds out in /sys/class/net what an interface is. Its index
// is its alone as long as the machine runs.
func lookAtInterface(class string) func(*device) {
	return func(d *device) {
		path := filepath.Join(class, d.id)
		d.label, d.kind, d.mark = d.id, host.InterfaceKind(path), firstLine(filepath.Join(path, "ifindex"))
	}
}

// firstLine is the first line of a small file, or "" if there is none.
func firstLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// Name is "network_interface".
func (n *netdev) Name() string { return interfaces }

// Read fills f, without allocating while the same interfaces are there.
func (n *netdev) Read(f *metric.Frame) error {
	f.Begin = host.Mono()
	text, err := n.file.Read()
	f.End = host.Mono()
	if err != nil {
		return err
	}
	n.roster.begin()
	if err := parseNetdev(&n.roster, text); err != nil {
		return fmt.Errorf("read %s/dev: %w", netDir, err)
	}
	return n.roster.end(f)
}

var errNetdev = errors.New("it is not as proc_pid_net(5) has it")

// parseNetdev reads the lines "name: 16 numbers" after two of headings.
func parseNetdev(r *roster, text []byte) error {
	for range 2 {
		var found bool
		if _, text, found = bytes.Cut(text, newline); !found {
			return errNetdev
		}
	}
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, newline)
		name, rest, ok := bytes.Cut(line, colon)
		name = bytes.TrimLeft(name, " ")
		if !ok || len(name) == 0 {
			return errNetdev
		}
		d := r.see(name)
		for i := range d.now {
			if d.now[i], rest, ok = source.Number(rest); !ok {
				return errNetdev
			}
		}
	}
	return nil
}

// Close closes the file.
func (n *netdev) Close() error { return n.file.Close() }

func interfacesSampler() source.Sampler {
	return source.Sampler{Name: interfaces, Reads: netDir + "/dev", Needs: "CONFIG_NET", Descs: columnDescs(netdevColumns),
		Open: func() (source.Source, error) { return openNetdev(netDir, "/sys/class/net", maxInterfaces) }}
}
