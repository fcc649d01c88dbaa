// SPDX-License-Identifier: Apache-2.0

// Command init is the only process of the test virtual machine: it mounts
// what a Linux has, runs every test binary under /t with its own folder as
// working directory, says how each ended and powers off.
//
// It is not for any other machine.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

type mount struct{ kind, target, data string }

// cgroupMounts gives the virtual machine the cgroup hierarchy that the kernel
// command line names: unified (the default) or v1.
func cgroupMounts(cmdline string) []mount {
	if option(cmdline, "rezolus.cgroup") == "v1" {
		return []mount{
			{"tmpfs", "/sys/fs/cgroup", ""},
			{"cgroup", "/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct"},
			{"cgroup", "/sys/fs/cgroup/memory", "memory"},
			{"cgroup", "/sys/fs/cgroup/blkio", "blkio"},
			{"cgroup", "/sys/fs/cgroup/pids", "pids"},
			{"cgroup2", "/sys/fs/cgroup/unified", ""},
		}
	}
	return []mount{{"cgroup2", "/sys/fs/cgroup", ""}}
}

func main() {
	mountAll([]mount{
		{"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"devtmpfs", "/dev", ""},
		{"tmpfs", "/tmp", ""}, {"tmpfs", "/run", ""},
	})
	cmdline, _ := os.ReadFile("/proc/cmdline")
	mountAll(cgroupMounts(string(cmdline)))
	loadModules()
	mountDisks()
	if err := loopbackUp(); err != nil {
		fmt.Println("VM-NOTE loopback:", err)
	}
	// From here on the kernel says only what ends the machine: its lines would
	// come in the middle of those that the host reads.
	const consoleLevel, alerts = 8, 2 // SYSLOG_ACTION_CONSOLE_LEVEL of syslog(2)
	if _, err := unix.Klogctl(consoleLevel, make([]byte, alerts)); err != nil {
		fmt.Println("VM-NOTE quiet the console:", err)
	}
	binaries, _ := filepath.Glob("/t/*/run.test")
	for _, binary := range binaries {
		fmt.Printf("\nVM-RUN %s\n", filepath.Base(filepath.Dir(binary)))
		fmt.Printf("VM-EXIT %s %d\n", filepath.Base(filepath.Dir(binary)), run(binary, string(cmdline)))
	}
	fmt.Println("VM-END")
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println("VM-NOTE power off:", err)
	}
	select {}
}

// option is the value of name=value on the kernel's command line.
func option(cmdline, name string) string {
	for field := range strings.FieldsSeq(cmdline) {
		if value, ok := strings.CutPrefix(field, name+"="); ok {
			return value
		}
	}
	return ""
}

func mountAll(mounts []mount) {
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			fmt.Println("VM-NOTE", err)
		}
		if err := unix.Mount(m.kind, m.target, m.kind, 0, m.data); err != nil && !errors.Is(err, unix.EBUSY) {
			fmt.Printf("VM-NOTE mount %s on %s: %v\n", m.kind, m.target, err)
		}
	}
}

// run starts a test binary and reaps whatever else dies meanwhile: process 1
// inherits every orphan.
func run(binary, cmdline string) int {
	cmd := exec.Command(binary, "-test.v", "-test.timeout="+option(cmdline, "rezolus.timeout"), "-test.run="+option(cmdline, "rezolus.run"))
	cmd.Dir = filepath.Dir(binary)
	cmd.Env = []string{"PATH=/bin", "HOME=/tmp", "TMPDIR=/tmp", "REZOLUS_VM=1"}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	if err := cmd.Start(); err != nil {
		fmt.Println("VM-NOTE", err)
		return 126
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err != nil && err != syscall.EINTR {
			fmt.Println("VM-NOTE wait:", err)
			return 125
		}
		if pid == cmd.Process.Pid {
			if status.Signaled() {
				return 128 + int(status.Signal())
			}
			return status.ExitStatus()
		}
	}
}

// loadModules loads the modules of the initramfs in the order of their names.
func loadModules() {
	modules, _ := filepath.Glob("/modules/*.ko")
	for _, path := range modules {
		f, err := os.Open(path)
		if err == nil {
			err = unix.FinitModule(int(f.Fd()), "", 0)
			f.Close()
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			fmt.Printf("VM-NOTE load %s: %v\n", path, err)
		}
	}
}

// mountDisks mounts the file systems that the machine was started with, each
// on a controller of its own, at /mnt/NAME. The controllers are found in the
// background.
func mountDisks() {
	for i, name := range []string{"ext4", "xfs", "btrfs"} {
		target, disk := "/mnt/"+name, disk(fmt.Sprintf("rezolus%d", i))
		if err := os.MkdirAll(target, 0o755); err != nil {
			fmt.Println("VM-NOTE", err)
		}
		if err := unix.Mount(disk, target, name, 0, ""); err != nil {
			fmt.Printf("VM-NOTE mount %s on %s: %v\n", disk, target, err)
		}
	}
}

// disk waits for the NVMe controller with that serial number and is the path
// of its disk.
func disk(serial string) string {
	for range 500 {
		files, _ := filepath.Glob("/sys/class/nvme/*/serial")
		for _, f := range files {
			text, _ := os.ReadFile(f)
			disks, _ := filepath.Glob(filepath.Join(filepath.Dir(f), "nvme*n1"))
			if strings.TrimSpace(string(text)) != serial || len(disks) == 0 {
				continue
			}
			path := "/dev/" + filepath.Base(disks[0])
			if _, err := os.Stat(path); err == nil {
				return path
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return "/dev/disk-" + serial + "-not-found"
}

func loopbackUp() error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(lo.Name)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}
