// SPDX-License-Identifier: Apache-2.0

// Package follow is the reader's side of an agent's stream (GET /stream): the
// bytes of a recording over HTTP, tick by tick, across connections that break,
// agents that restart and others that hang. It decodes nothing.
//
// A follower names its stream and says what it has when it comes back, so that
// a cut which the agent's memory spans loses no tick; what is lost all the
// same comes as a gap.
package follow

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"rezolus/internal/metric"
	"rezolus/internal/store"
)

// Options say what is followed.
type Options struct {
	URL      *url.URL          // of the agent; a user and password in it are sent as basic authentication
	Interval time.Duration     // of the ticks
	Meta     map[string]string // to stand in the recording
	Client   *http.Client      // NewClient makes one; nil: a plain one
	Compress bool              // ask for zstd: for networks, not for loopback
	// After is the time of the last tick that is there already, from an
	// earlier life of the follower, in Unix nanoseconds; 0: there is none.
	After int64
	// Idle is how long nothing may come before the connection is given up;
	// 0: ten seconds, or three intervals if that is more.
	Idle time.Duration
	// State is told when the stream breaks, and why, when the reason changes
	// for which it cannot be had, and when it is there again (nil), in the
	// goroutine of Next. It may be nil.
	State func(err error)
}

// ErrNoAgent says that who answers is not an agent.
var ErrNoAgent = errors.New("not an agent")

// ErrEnded says that an agent ended on purpose, having sent all it had.
var ErrEnded = errors.New("the agent ended")

// StatusError is an answer that is none.
type StatusError struct {
	Where string // without the password
	Code  int
	Text  string // the answer's status line, and what it says
}

// Error implements error.
func (e *StatusError) Error() string { return fmt.Sprintf("%s answers %s", e.Where, e.Text) }

// NewClient makes a client for streams, which have no end: only getting one
// may not take for ever, and its answer begins within patience.
func NewClient(t *tls.Config, patience time.Duration) *http.Client {
	return &http.Client{Transport: &http.Transport{ResponseHeaderTimeout: patience, TLSHandshakeTimeout: 10 * time.Second,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, TLSClientConfig: t, DisableCompression: true}}
}

// Tick is one tick as it came.
type Tick struct {
	store.Tick
	// Raw are whole records, valid until the next call: the tick's, and
	// those that are due before it.
	Raw []byte
	Run metric.Run
	// Gap is what is missing just before it; nil: nothing is. After one, Raw
	// begins a chain.
	Gap *store.Gap
}

// Stream is an agent that is followed. One goroutine may use it.
type Stream struct {
	o       Options
	ctx     context.Context
	id      string
	conn    *connection
	pending []byte // records before the next tick
	run     metric.Run
	newRun  metric.Run // of the chain that has no tick yet
	chained bool       // a chain was begun since the last tick
	last    store.Tick // 0 for Seq: none
	clock   int64
}

// connection is one answer of the agent.
type connection struct {
	body    io.Closer
	unpack  io.Closer
	records *store.Records
	cancel  context.CancelFunc
	idle    *time.Timer
}

func (c *connection) close() {
	c.idle.Stop()
	c.cancel()
	if c.unpack != nil {
		_ = c.unpack.Close() // it reads from a body that is closed
	}
	_ = c.body.Close()
}

// Open follows an agent until ctx ends. It fails if the agent does not answer
// now; later it is waited for.
func Open(ctx context.Context, o Options) (*Stream, error) {
	s := Await(ctx, o)
	if err := s.connect(); err != nil {
		return nil, err
	}
	return s, nil
}

// Await is Open for an agent that need not be there yet: Next waits for it.
func Await(ctx context.Context, o Options) *Stream {
	if o.Client == nil {
		o.Client = NewClient(nil, 10*time.Second)
	}
	if o.Idle <= 0 {
		o.Idle = max(10*time.Second, 3*o.Interval)
	}
	if o.State == nil {
		o.State = func(error) {}
	}
	return &Stream{o: o, ctx: ctx, id: newID()}
}

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// address is the URL of the stream.
func (s *Stream) address(more url.Values) string {
	u := s.o.URL.JoinPath("stream")
	u.User = nil
	v := url.Values{"interval": {s.o.Interval.String()}, "id": {s.id}}
	for key, value := range s.o.Meta {
		v.Add("meta", key+"="+value)
	}
	if s.last.Seq > 0 {
		v.Set("run", hex.EncodeToString(s.run.ID[:]))
		v.Set("since", strconv.FormatUint(s.last.Seq, 10))
		v.Set("after", strconv.FormatInt(s.last.Wall, 10))
	} else if s.o.After != 0 {
		v.Set("run", strings.Repeat("0", 32)) // of no agent
		v.Set("after", strconv.FormatInt(s.o.After, 10))
	}
	for key, values := range more {
		v[key] = values
	}
	u.RawQuery = v.Encode()
	return u.String()
}

func (s *Stream) request(ctx context.Context, more url.Values) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.address(more), nil)
	if err != nil {
		return nil, err
	}
	if u := s.o.URL.User; u != nil {
		password, _ := u.Password()
		r.SetBasicAuth(u.Username(), password)
	}
	if s.o.Compress {
		r.Header.Set("Accept-Encoding", "zstd")
	}
	return r, nil
}

// connect asks for the stream.
func (s *Stream) connect() error {
	ctx, cancel := context.WithCancel(s.ctx)
	r, err := s.request(ctx, nil)
	if err != nil {
		cancel()
		return err
	}
	response, err := s.o.Client.Do(r)
	if err != nil {
		cancel()
		var outer *url.Error
		if errors.As(err, &outer) { // it repeats the address
			err = outer.Err
		}
		return err
	}
	c := &connection{body: response.Body, cancel: cancel, idle: time.AfterFunc(s.o.Idle, cancel)}
	if err = s.check(response); err == nil {
		var from io.Reader = response.Body
		if strings.EqualFold(response.Header.Get("Content-Encoding"), "zstd") {
			var unpacked io.ReadCloser
			if unpacked, err = store.NewDecompressor(response.Body); err == nil {
				from, c.unpack = unpacked, unpacked
			}
		}
		c.records = store.NewRecords(from)
	}
	if err != nil {
		c.close()
		return err
	}
	if clock, err := strconv.ParseInt(response.Header.Get("Rezolus-Clock"), 10, 64); err == nil {
		s.clock = clock - time.Now().UnixNano()
	}
	s.conn, s.pending = c, s.pending[:0]
	return nil
}

// check judges the answer's head.
func (s *Stream) check(r *http.Response) error {
	where := s.o.URL.Redacted()
	if r.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(r.Body, 1000)) // what there is
		e := &StatusError{where, r.StatusCode, strings.TrimSpace(r.Status + ": " + strings.TrimSpace(string(text)))}
		if r.StatusCode == http.StatusNotFound || r.StatusCode == http.StatusMethodNotAllowed {
			return fmt.Errorf("%w: %w", ErrNoAgent, e)
		}
		return e
	}
	if t := r.Header.Get("Content-Type"); t != "application/vnd.rezolus.recording" {
		return fmt.Errorf("%s is %w: its stream is %q", where, ErrNoAgent, t)
	}
	return nil
}

// Clock is the agent's time of day minus ours, as of the last connection.
func (s *Stream) Clock() time.Duration { return time.Duration(s.clock) }

// Restart gives the stream up and begins a new one: for when records that came
// could not be kept.
func (s *Stream) Restart() {
	s.drop()
	s.bye()
	s.id = newID()
}

func (s *Stream) drop() {
	if s.conn != nil {
		s.conn.close()
		s.conn = nil
	}
}

// Close ends the stream and tells the agent so.
func (s *Stream) Close() {
	s.drop()
	s.bye()
}

// bye lets the agent forget the stream at once.
func (s *Stream) bye() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 500*time.Millisecond)
	defer cancel()
	r, err := s.request(ctx, url.Values{"bye": {"1"}})
	if err != nil {
		return
	}
	if response, err := s.o.Client.Do(r); err == nil { // else it forgets by itself
		_ = response.Body.Close()
	}
	s.o.Client.CloseIdleConnections()
}

// Next waits for the next tick, over as many connections as it takes. The
// error is that of the context.
func (s *Stream) Next() (Tick, error) {
	for {
		if s.conn == nil {
			if err := s.reconnect(); err != nil {
				return Tick{}, err
			}
		}
		t, err := s.read()
		if err == nil {
			return t, nil
		}
		s.drop()
		if s.ctx.Err() != nil {
			return Tick{}, s.ctx.Err()
		}
		if errors.Is(err, context.Canceled) {
			err = fmt.Errorf("nothing came for %v", s.o.Idle)
		}
		s.o.State(err)
	}
}

// reconnect tries until it succeeds or the context ends, at first often.
func (s *Stream) reconnect() error {
	said := ""
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		select {
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-time.After(wait):
		}
		err := s.connect()
		if err == nil {
			s.o.State(nil)
			return nil
		}
		if text := err.Error(); text != said && s.ctx.Err() == nil {
			said = text
			s.o.State(err)
		}
	}
}

// read reads records up to a tick.
func (s *Stream) read() (Tick, error) {
	for {
		rec, err := s.conn.records.Next()
		if err != nil {
			return Tick{}, err
		}
		s.conn.idle.Reset(s.o.Idle)
		switch rec.Type {
		case store.TypeEnd:
			return Tick{}, ErrEnded
		case store.TypeRun:
			if s.newRun, err = rec.Run(); err != nil {
				return Tick{}, err
			}
			s.pending, s.chained = append(s.pending[:0], rec.Raw...), true
		case store.TypeTick:
			return s.tick(rec)
		default:
			s.pending = append(s.pending, rec.Raw...)
		}
	}
}

func (s *Stream) tick(rec store.Record) (Tick, error) {
	front, err := rec.Tick()
	if err != nil {
		return Tick{}, err
	}
	t := Tick{Tick: front, Raw: rec.Raw}
	if len(s.pending) > 0 {
		s.pending = append(s.pending, rec.Raw...)
		t.Raw, s.pending = s.pending, s.pending[:0]
	}
	if s.chained {
		t.Gap = s.gap(front)
		s.run, s.chained = s.newRun, false
	}
	t.Run, s.last = s.run, front
	return t, nil
}

// gap is what is missing between the last tick and the first of a new chain.
func (s *Stream) gap(t store.Tick) *store.Gap {
	if s.last.Seq == 0 || s.run.ID == s.newRun.ID && t.Seq == s.last.Seq+1 {
		return nil
	}
	reason := "the agent could not be followed"
	if s.run.ID != s.newRun.ID {
		reason = "the agent was restarted"
	}
	g := t.GapFrom(s.last.Wall+t.Interval, reason)
	return &g
}
