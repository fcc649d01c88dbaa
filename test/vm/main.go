// SPDX-License-Identifier: Apache-2.0

// Command vm runs the tests of packages on another kernel: it compiles each
// package's tests into a static binary, packs them with a tiny init into an
// initramfs and boots it in QEMU without hardware acceleration.
//
//	go run ./test/vm -kernel 6.1 ./internal/bpf ./test/truth
//
// It fails when a test fails, when a virtual machine ends early, or when a
// test skips that test/skips.txt does not name for that kernel.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"rezolus/test/skips"
)

type machine struct {
	kernel, arch, cgroup string
	run, also            string
	timeout              time.Duration
	verbose              bool
}

func main() {
	var m machine
	flag.StringVar(&m.kernel, "kernel", "6.1", "kernel `series`: .cache/kernels/SERIES-ARCH is booted")
	flag.StringVar(&m.arch, "arch", "amd64", "amd64 or arm64")
	flag.StringVar(&m.cgroup, "cgroup", "v2", "cgroup hierarchy inside: v2 or v1")
	flag.StringVar(&m.run, "run", "", "run only the tests that match this `pattern`, without blanks")
	flag.StringVar(&m.also, "command", "", "also pack this `package`, a command, as /bin/NAME")
	flag.DurationVar(&m.timeout, "timeout", 20*time.Minute, "give up after this long")
	flag.BoolVar(&m.verbose, "v", false, "print all that the machine prints")
	flag.Parse()
	if err := m.test(flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "vm: %s: %v\n", m.name(), err)
		os.Exit(1)
	}
}

func (m machine) name() string {
	name := m.kernel + "-" + m.arch
	if m.cgroup != "v2" {
		name += "-cgroup-" + m.cgroup
	}
	return name
}

func (m machine) test(packages []string) error {
	if len(packages) == 0 {
		return errors.New("no packages given")
	}
	dir, err := os.MkdirTemp("", "vm")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	initramfs := filepath.Join(dir, "initramfs")
	if err := m.pack(initramfs, dir, packages); err != nil {
		return err
	}
	disks, err := makeDisks(dir)
	if err != nil {
		return err
	}
	began := time.Now()
	r, err := m.boot(initramfs, disks)
	fmt.Printf("%s: %d passed, %d failed, %d skipped in %.0f s\n",
		m.name(), len(r.passed), len(r.failed), len(r.skipped), time.Since(began).Seconds())
	if err != nil {
		return err
	}
	return r.verdict(m.name(), len(packages))
}

// pack compiles the tests and writes the initramfs. Each package gets the
// folder t/<package path with dots>, with its testdata beside the binary.
func (m machine) pack(out, dir string, packages []string) error {
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	a := &archive{w: w, dirs: map[string]bool{}}
	init := filepath.Join(dir, "init")
	if err := m.goCommand("build", "-o", init, "./test/vm/init"); err != nil {
		return err
	}
	a.file("init", init, 0o755)
	for _, d := range []string{"proc", "sys", "dev", "tmp", "run"} {
		a.dir(d)
	}
	if err := m.addModules(a); err != nil {
		return err
	}
	if m.also != "" {
		binary := filepath.Join(dir, filepath.Base(m.also))
		if err := m.goCommand("build", "-o", binary, m.also); err != nil {
			return err
		}
		a.file(filepath.Join("bin", filepath.Base(m.also)), binary, 0o755)
	}
	for _, p := range packages {
		binary := filepath.Join(dir, "test")
		if err := m.goCommand("test", "-c", "-o", binary, p); err != nil {
			return err
		}
		name := filepath.Join("t", strings.ReplaceAll(strings.Trim(filepath.Clean(p), "./"), "/", "."))
		a.file(filepath.Join(name, "run.test"), binary, 0o755)
		a.tree(filepath.Join(name, "testdata"), filepath.Join(p, "testdata"))
	}
	if err := a.end(); err != nil {
		return err
	}
	return w.Flush()
}

func (m machine) goCommand(args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+m.arch)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

func (m machine) command(ctx context.Context, initramfs string, disks []string) *exec.Cmd {
	console, qemu := "ttyS0", "qemu-system-x86_64"
	args := []string{"-accel", "tcg,thread=single", "-cpu", "max", "-smp", "2", "-m", "2048", "-nographic", "-no-reboot",
		"-nic", "none", "-initrd", initramfs}
	if m.arch == "arm64" {
		console, qemu = "ttyAMA0", "qemu-system-aarch64"
		// Pointer authentication in software makes everything several times slower.
		args = append(args, "-machine", "virt", "-cpu", "max,pauth=off")
	} else {
		// A drive that knows SMART, behind the chip set's own ATA controller.
		args = append(args, "-drive", "if=none,id=ata,driver=null-co,size=64M,read-zeroes=on", "-device", "ide-hd,drive=ata,serial=rezolus-ata")
	}
	cmdline := fmt.Sprintf("console=%s panic=-1 softlockup_panic=1 watchdog_thresh=10 rezolus.cgroup=%s rezolus.run=%s rezolus.timeout=%v",
		console, m.cgroup, m.run, m.timeout*9/10)
	if !m.verbose {
		cmdline += " quiet"
	}
	for i, disk := range disks {
		args = append(args, "-drive", fmt.Sprintf("file=%s,format=raw,if=none,id=disk%d", disk, i),
			"-device", fmt.Sprintf("nvme,drive=disk%d,serial=rezolus%d", i, i))
	}
	args = append(args, "-kernel", filepath.Join(".cache/kernels", m.kernel+"-"+m.arch), "-append", cmdline)
	return exec.CommandContext(ctx, qemu, args...)
}

// boot runs the machine to its end and collects what its console says.
func (m machine) boot(initramfs string, disks []string) (*report, error) {
	ctx, cancel := context.WithTimeout(context.Background(), m.timeout)
	defer cancel()
	cmd := m.command(ctx, initramfs, disks)
	console, err := cmd.StdoutPipe()
	if err != nil {
		return &report{}, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return &report{}, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	r := readConsole(console, m.verbose)
	if err := cmd.Wait(); err != nil {
		return r, fmt.Errorf("%s: %w\n%s%s", cmd.Path, err, stderr.String(), r.tail())
	}
	return r, nil
}

// report is what the tests inside said.
type report struct {
	passed, failed, skipped []string // package.Test
	exits                   map[string]string
	ended                   bool
	lines                   []string
}

func (r *report) tail() string {
	return strings.Join(r.lines[max(0, len(r.lines)-60):], "\n")
}

func readConsole(console io.Reader, verbose bool) *report {
	r := &report{exits: map[string]string{}}
	lines := bufio.NewScanner(console)
	lines.Buffer(nil, 1<<20)
	current := ""
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		r.lines = append(r.lines, line)
		if verbose {
			fmt.Println(line)
		}
		fields := strings.Fields(line)
		switch {
		case strings.Contains(line, "VM-RUN "): // it may come after a line of the kernel's
			_, current, _ = strings.Cut(line, "VM-RUN ")
		case strings.HasPrefix(line, "VM-EXIT ") && len(fields) == 3:
			r.exits[fields[1]] = fields[2]
		case line == "VM-END":
			r.ended = true
		case strings.HasPrefix(line, "--- PASS: "):
			r.passed = append(r.passed, current+"."+fields[2])
		case strings.HasPrefix(line, "--- FAIL: "):
			r.failed = append(r.failed, current+"."+fields[2])
		case strings.HasPrefix(strings.TrimLeft(line, " "), "--- SKIP: "): // a subtest too
			r.skipped = append(r.skipped, current+"."+fields[2])
		}
	}
	return r
}

// verdict is the error that the report amounts to, if any.
func (r *report) verdict(name string, packages int) error {
	if !r.ended || len(r.exits) != packages {
		return fmt.Errorf("the machine ended after %d of %d packages:\n%s", len(r.exits), packages, r.tail())
	}
	for p, code := range r.exits {
		if code != "0" {
			return fmt.Errorf("%s exited with %s; failed: %s\n%s", p, code, strings.Join(r.failed, " "),
				strings.Join(r.lines, "\n"))
		}
	}
	if len(r.passed) == 0 {
		return errors.New("no test ran")
	}
	return skips.Check("test/skips.txt", name, r.skipped)
}
