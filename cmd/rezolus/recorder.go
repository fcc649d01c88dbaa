// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"rezolus/internal/store"
)

// follower is an open stream of an agent.
type follower struct {
	body    io.ReadCloser
	records *store.Records
}

func (f *follower) Close() error { return f.body.Close() }

// follow opens the stream.
func follow(ctx context.Context, address string, interval time.Duration, meta map[string]string) (*follower, error) {
	values := url.Values{"interval": {interval.String()}}
	for k, v := range meta {
		values.Add("meta", k+"="+v)
	}
	u, err := endpoint(address, "stream", values)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, err
	}
	// The stream has no end; only getting it may not take for ever.
	client := http.Client{Transport: &http.Transport{ResponseHeaderTimeout: 10 * time.Second,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext}}
	response, err := client.Do(request)
	if err != nil {
		return nil, unreachable(address, err)
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		response.Body.Close()
		err := fmt.Errorf("%s answers %s: %s", u, response.Status, strings.TrimSpace(string(text)))
		if response.StatusCode == http.StatusBadRequest {
			return nil, usage{err}
		}
		return nil, err
	}
	return &follower{response.Body, store.NewRecords(response.Body)}, nil
}

// recorder appends a stream to a file.
type recorder struct {
	url      string
	interval time.Duration
	meta     map[string]string
	writer   *store.Writer
	follower *follower
	began    time.Time
	ticks    int
	lastTick time.Time
	troubled error // the last trouble with the file, which may pass
}

// run records until the context ends or the command does.
func (r *recorder) run(ctx context.Context, command []string) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if len(command) == 0 {
		return r.loop(ctx)
	}
	child, err := startCommand(command)
	if err != nil {
		return err
	}
	go func() {
		child.wait()
		stop(errCommandEnded)
	}()
	err = r.loop(ctx)
	if cause := context.Cause(ctx); !errors.Is(cause, errCommandEnded) {
		child.end()
	}
	status := child.status()
	if errors.Is(context.Cause(ctx), errTimeUp) {
		status = 124
	}
	if err == nil && status != 0 {
		return exit(status)
	}
	return err
}

var errCommandEnded = errors.New("the command ended")

// loop appends record after record. It returns nil when the context ends.
func (r *recorder) loop(ctx context.Context) error {
	progress := newProgress(r)
	defer progress.clear()
	for {
		// Closing the body is what wakes a read that waits.
		release := context.AfterFunc(ctx, func() { r.follower.Close() })
		err := r.append(ctx, progress)
		release()
		r.follower.Close()
		if ctx.Err() != nil {
			return r.troubled
		}
		var full fileError
		if errors.As(err, &full) {
			// The disk may have room again; until then nothing is kept,
			// and the agent's next stream begins with all a reader needs.
			r.troubled = err
			progress.say(err)
		}
		if !r.reconnect(ctx) {
			return r.troubled
		}
	}
}

// fileError is trouble with the file, not with the agent.
type fileError struct{ error }

func (e fileError) Unwrap() error { return e.error }

// append copies one stream to its end.
func (r *recorder) append(ctx context.Context, progress *progress) error {
	for {
		record, err := r.follower.records.Next()
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := r.writer.PutRaw(record.Raw); err != nil {
			return fileError{err}
		}
		r.troubled = nil
		if record.Type == store.TypeTick {
			r.ticks++
			r.lastTick = time.Now()
			progress.tick()
		}
	}
}

// reconnect waits for the agent and marks the gap. It returns false when the
// context ended.
func (r *recorder) reconnect(ctx context.Context) bool {
	lost := r.lastTick
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(min(time.Second, max(100*time.Millisecond, r.interval))):
		}
		f, err := follow(ctx, r.url, r.interval, r.meta)
		if err != nil {
			continue
		}
		r.follower = f
		gap := store.Gap{From: lost.Add(r.interval).UnixNano(), To: time.Now().UnixNano(), Reason: "the agent could not be followed"}
		if r.troubled != nil {
			gap.Reason = "the file could not be written"
		}
		if err := r.writer.WriteGap(gap); err != nil {
			r.troubled = fileError{err}
		}
		return true
	}
	return false
}

// summary says what was recorded, in one line.
func (r *recorder) summary(path string) {
	line := fmt.Sprintf("%s: %d ticks in %v, %d bytes", path, r.ticks, time.Since(r.began).Round(time.Millisecond), r.writer.Size())
	if rec, err := store.Open(osFS, path); err == nil {
		if missed := rec.Info().Missed; missed > 0 {
			line += fmt.Sprintf(", %d missed", missed)
		}
		rec.Close()
	}
	fmt.Fprintln(os.Stderr, line)
}

// progress is the line that moves while recording, on a terminal.
type progress struct {
	r     *recorder
	shown time.Time
	quiet bool
}

func newProgress(r *recorder) *progress {
	return &progress{r: r, quiet: !term.IsTerminal(int(os.Stderr.Fd()))}
}

func (p *progress) tick() {
	if p.quiet || time.Since(p.shown) < 500*time.Millisecond {
		return
	}
	p.shown = time.Now()
	fmt.Fprintf(os.Stderr, "\r\x1b[K%v  %d ticks  %d kB", time.Since(p.r.began).Round(time.Second), p.r.ticks, p.r.writer.Size()/1000)
}

func (p *progress) clear() {
	if !p.quiet && !p.shown.IsZero() {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}

func (p *progress) say(err error) {
	p.clear()
	if errors.Is(err, syscall.ENOSPC) {
		fmt.Fprintf(os.Stderr, "rezolus: warning: the disk is full: nothing is recorded until there is room\n")
		return
	}
	fmt.Fprintf(os.Stderr, "rezolus: warning: %v\n", err)
}
