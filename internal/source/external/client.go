// SPDX-License-Identifier: Apache-2.0

package external

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"time"
)

// client is one connection. Its goroutine alone touches it.
type client struct {
	*Source
	conn    *net.UnixConn
	account *account
	parser  parser
	number  uint64  // of the line, from 1
	replies float64 // that it may still be sent
	last    int64   // mono of the last reply
}

// accept takes connections until the listener is closed.
func (s *Source) accept() {
	for {
		c, err := s.listener.AcceptUnix()
		if err == nil {
			s.admit(c)
			continue
		}
		if errors.Is(err, net.ErrClosed) || !s.pause(100*time.Millisecond) { // else: out of descriptors
			return
		}
	}
}

// pause waits, and tells whether the source is still open.
func (s *Source) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.stop:
		return false
	}
}

// admit begins to serve a connection, or refuses it.
func (s *Source) admit(c *net.UnixConn) {
	who, err := peerOf(c)
	if err != nil {
		c.Close()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Close()
		return
	}
	if len(s.conns) >= s.options.MaxClients {
		s.table.dropped[clients]++
		tell(c, fmt.Sprintf("error line 0: there are %d connections, as many as there may be\n", len(s.conns)))
		c.Close()
		return
	}
	s.conns[c] = struct{}{}
	now := s.mono()
	one := &client{Source: s, conn: c, account: s.table.open(who, now), replies: maxReplies, last: now}
	s.running.Go(one.serve)
}

func (c *client) serve() {
	defer func() {
		c.mu.Lock()
		delete(c.conns, c.conn)
		c.account.connections--
		c.table.release(c.account)
		c.mu.Unlock()
		c.conn.Close()
	}()
	c.read()
}

// firstBuffer holds many lines; it grows for a longer one.
const firstBuffer = 16 << 10

// read takes lines off the stream, however it was cut into pieces.
func (c *client) read() {
	buf := make([]byte, firstBuffer)
	held := 0         // bytes of a line that is not whole yet
	skipping := false // within a line that is too long
	for {
		got, err := c.conn.Read(buf[held:])
		text := buf[:held+got]
		if skipping {
			if _, rest, ended := bytes.Cut(text, newline); ended {
				text, skipping = rest, false
			} else {
				text = nil
			}
		}
		text, useless := c.takeLines(text)
		if err != nil {
			if len(text) > 0 {
				c.number++
				c.refuse(unfinishedLine, 1)
			}
			return
		}
		if len(text) > c.options.MaxLine {
			c.number++
			c.refuse(refuse(tooLong, "longer than %d bytes", c.options.MaxLine), 1)
			text, skipping = nil, true
		}
		// Who sends only what is dropped is read at some 1.6 MB/s, three
		// times what the limit lets through: else it could keep a CPU busy.
		if (useless || skipping) && !c.pause(10*time.Millisecond) {
			return
		}
		if held = copy(buf, text); held == len(buf) {
			buf = append(buf, make([]byte, min(held, c.options.MaxLine+1-held))...)
		}
	}
}

var newline = []byte{'\n'}

// takeLines does what the whole lines of text say and returns the rest.
// useless tells that all were dropped for being too many.
func (c *client) takeLines(text []byte) (rest []byte, useless bool) {
	for first := true; ; first = false {
		one, rest, ended := bytes.Cut(text, newline)
		if !ended {
			return text, false
		}
		if !c.allowed() {
			n := bytes.Count(text, newline)
			c.number += uint64(n)
			c.refuse(tooManyLines, uint64(n))
			return text[bytes.LastIndexByte(text, '\n')+1:], first
		}
		c.number++
		if err := c.take(one); err != nil {
			c.refuse(err, 1)
		}
		text = rest
	}
}

func (c *client) allowed() bool {
	now := c.mono()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.allow(c.account, now)
}

// take does what one line says.
func (c *client) take(text []byte) error {
	if len(text) > c.options.MaxLine {
		return refuse(tooLong, "longer than %d bytes", c.options.MaxLine)
	}
	l, err := c.parser.parse(text)
	if err != nil || l.verb == nothing {
		return err
	}
	mono, wall := c.mono(), c.wall()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.apply(c.account, l, mono, wall)
}

var (
	tooManyLines   = &refusal{tooFast, "too many lines a second; those above the limit are dropped"}
	unfinishedLine = &refusal{unfinished, "the connection ended within the line; close every line with a newline"}
)

// maxReplies is how many error lines a connection is sent a second.
const maxReplies = 10

// refuse counts lines that are not taken, the last of which is the present
// one, and tells the client if it listens.
func (c *client) refuse(err error, n uint64) {
	var r *refusal
	if !errors.As(err, &r) {
		return
	}
	c.mu.Lock()
	c.table.dropped[r.reason] += n
	c.mu.Unlock()
	now := c.mono()
	c.replies = min(maxReplies, c.replies+maxReplies*float64(now-c.last)/1e9)
	c.last = now
	if c.replies < 1 {
		return
	}
	c.replies--
	tell(c.conn, fmt.Sprintf("error line %d: %s\n", c.number, r.text))
}
