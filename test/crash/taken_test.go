// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestTheRingIsTakenAway removes the ring's directory, or its files, or
// unmounts its disk under a real agent. It goes on by itself, and tells.
func TestTheRingIsTakenAway(t *testing.T) {
	rezolus(t)
	for name, take := range map[string]func(t *testing.T, p *process, d *disk, ring string){
		"directory": func(t *testing.T, _ *process, _ *disk, ring string) {
			if err := os.RemoveAll(ring); err != nil {
				t.Fatal(err)
			}
		},
		"files": func(t *testing.T, _ *process, _ *disk, ring string) {
			for _, pattern := range []string{"*.log", "*.rzr"} {
				files, _ := filepath.Glob(filepath.Join(ring, pattern)) // the pattern is good
				for _, path := range files {
					if err := os.Remove(path); err != nil && !os.IsNotExist(err) { // one that was sealed meanwhile
						t.Fatal(err)
					}
				}
			}
		},
		"disk": unmounted,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := makeDisk(t, 24)
			config, ring := filepath.Join(t.TempDir(), "agent.toml"), filepath.Join(d.dir, "ring")
			configure(t, config, "127.0.0.1:0", ring, 20*time.Millisecond, few)
			p := startAgent(t, rezolus(t), config)
			await(t, "ticks are kept", func() bool { return ringOf(t, p).Ticks > 20 })
			dump := filepath.Join(t.TempDir(), "dump.rzr")
			if !download(t, p.url, dump) {
				t.Fatal("the ring gives no dump")
			}
			before, _ := read(t, dump)
			take(t, p, d, ring)
			var after []tick
			// A dump that is under way when files go breaks off.
			await(t, "the ring goes on", func() bool { s := ringOf(t, p); return s.State == "recording" && s.Errors > 0 })
			await(t, "later ticks are in a dump", func() bool {
				after = nil
				if download(t, p.url, dump) {
					after, _ = read(t, dump)
				}
				return len(after) > 0 && after[len(after)-1].seq > before[len(before)-1].seq+100
			})
			if kept := slices.Equal(after[:min(len(before), len(after))], before); kept != (name == "disk") && name != "files" {
				t.Errorf("of the %d ticks before, all are there: %v", len(before), kept)
			}
			got := describe(t, dump)
			due := uint64(got.End-got.Start)/uint64(got.Every) + 1
			if len(got.Gaps) == 0 || got.Ticks+got.Missed < due && name == "disk" {
				t.Errorf("%d ticks and %d missed in the time of %d; gaps %+v", got.Ticks, got.Missed, due, got.Gaps)
			}
			p.end()
			said := p.said.String()
			if strings.Count(said, "the ring keeps no ticks") != 1 || strings.Count(said, "the ring keeps ticks again") != 1 {
				t.Errorf("the agent says\n%s", said)
			}
		})
	}
}

// unmounted takes the disk away until the agent has said so, and puts it back.
func unmounted(t *testing.T, p *process, d *disk, ring string) {
	if err := unix.Unmount(d.dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	await(t, "the agent loses ticks", func() bool { s := ringOf(t, p); return s.State == "failing" && s.Lost > 50 })
	if s := ringOf(t, p); !strings.Contains(s.Reason, "the ring's file system is not mounted") {
		t.Errorf("%+v", s)
	}
	if files, err := os.ReadDir(d.dir); err != nil || len(files) > 0 {
		t.Errorf("beneath the disk there is %v: %v", files, err)
	}
	if err := unix.Mount(d.device, d.dir, "ext4", 0, ""); err != nil {
		t.Fatal(err)
	}
}
