// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// child is the command that a recording lives as long as.
type child struct {
	cmd   *exec.Cmd
	tty   bool // it has the terminal
	ended chan struct{}
}

// foreground reports whether a file is the terminal that is ours to give away.
func foreground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// startCommand starts the command with this process's input and output, in a
// process group of its own, so that a signal reaches it once: by us, or from
// the keyboard if there is a terminal, whose group it then is (else it would be
// stopped when it reads; termios(3), TOSTOP and SIGTTIN).
func startCommand(argv []string) (*child, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c := &child{cmd: cmd, ended: make(chan struct{})}
	if tty := int(os.Stdin.Fd()); foreground(tty) {
		c.tty = true
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, tty
	}
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "rezolus: error: start command: %v\n", err)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return nil, exit(127) // as a shell has it
		}
		return nil, exit(126)
	}
	c.forward()
	return c, nil
}

// forward hands signals on until the command ends.
func (c *child) forward() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case s := <-signals:
				// It may have ended just now.
				_ = syscall.Kill(-c.cmd.Process.Pid, s.(syscall.Signal))
			case <-c.ended:
				return
			}
		}
	}()
}

func (c *child) wait() {
	_ = c.cmd.Wait() // status says how
	if c.tty {
		// Taking the terminal back from the background is not to stop us.
		signal.Ignore(syscall.SIGTTOU)
		_ = unix.IoctlSetPointerInt(int(os.Stdin.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
	}
	close(c.ended)
}

// end asks the command to end, and after a while makes it.
func (c *child) end() {
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-c.ended:
	case <-time.After(5 * time.Second):
		c.kill()
		<-c.ended
	}
}

// kill makes the command end now.
func (c *child) kill() { _ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) }

// status waits for the command and is its exit status as a shell has it.
func (c *child) status() int {
	<-c.ended
	state := c.cmd.ProcessState
	if s, ok := state.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return state.ExitCode()
}
