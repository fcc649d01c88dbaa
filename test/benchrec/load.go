// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// startLoad does a bit of everything until the context ends: requests over
// TCP, writes that are synced, short processes, pages that are touched.
func startLoad(ctx context.Context, dir string) (ended <-chan struct{}, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	file, err := os.Create(filepath.Join(dir, "load"))
	if err != nil {
		l.Close()
		return nil, err
	}
	var all sync.WaitGroup
	every := func(d time.Duration, f func() error) {
		all.Go(func() {
			t := time.NewTicker(d)
			defer t.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-t.C:
					if f() != nil {
						return // the load is over, or less
					}
				}
			}
		})
	}
	go echo(l)
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		l.Close()
		return nil, err
	}
	request := make([]byte, 2000)
	every(time.Millisecond, func() error {
		if _, err := c.Write(request); err != nil {
			return err
		}
		_, err := io.ReadFull(c, request)
		return err
	})
	block := make([]byte, 64<<10)
	every(20*time.Millisecond, func() error {
		if _, err := file.WriteAt(block, 0); err != nil {
			return err
		}
		return file.Sync()
	})
	every(50*time.Millisecond, func() error { return exec.Command("/bin/true").Run() })
	every(10*time.Millisecond, func() error {
		touched := make([]byte, 1<<20)
		for i := 0; i < len(touched); i += 4096 {
			touched[i]++
		}
		return nil
	})
	done := make(chan struct{})
	go func() {
		all.Wait()
		l.Close()
		c.Close()
		file.Close()
		os.Remove(file.Name())
		close(done)
	}()
	return done, nil
}

// echo answers one connection after the other.
func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(c, c) // until it is closed
		c.Close()
	}
}
