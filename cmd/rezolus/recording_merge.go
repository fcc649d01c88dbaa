// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rezolus/internal/store"
)

func newRecordingMerge() *cobra.Command {
	var t target
	var label string
	cmd := &cobra.Command{
		Use:     "merge [NAME=]FILE [NAME=]FILE... -o OUT",
		Aliases: []string{"combine"},
		Short:   "Make one recording of several",
		Long: `Recordings of one host are put one behind the other in the order of time.

Recordings of several hosts are woven together by time, and every series gets a
label that says whose it is: the NAME given before the file, or else the
metadata "instance", or the name of the host. Files with names are always kept
apart. Gaps of one host become events, for the others went on.`,
		Example: `  rezolus recording merge monday.rzr tuesday.rzr -o both.rzr
  rezolus recording merge db1.rzr db2.rzr web.parquet -o fleet.rzr
  rezolus recording merge before=a.rzr after=b.rzr --label experiment -o ab.rzr`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return hint(usage{fmt.Errorf("%d recordings; want two or more", len(args))}, "%s --help", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return mergeRecordings(cmd, args, &t, label)
		},
	}
	t.flags(cmd)
	cmd.Flags().StringVar(&label, "label", "instance", "the label that says whose a series is")
	return cmd
}

// member is a recording on its way into a merged one.
type member struct {
	*opened
	name  string
	named bool // by the one who asks
	info  store.Info
}

func mergeRecordings(cmd *cobra.Command, args []string, t *target, label string) error {
	if err := t.recording(); err != nil {
		return err
	}
	var all []*member
	defer func() {
		for _, m := range all {
			m.Close()
		}
	}()
	for _, arg := range args {
		m, err := openMember(cmd.Context(), arg)
		if err != nil {
			return err
		}
		m.warn(cmd.ErrOrStderr())
		all = append(all, m)
	}
	slices.SortStableFunc(all, func(a, b *member) int { return cmp.Compare(a.info.First, b.info.First) })
	apart, err := keepApart(all)
	if err != nil {
		return err
	}
	var made store.Copied
	err = t.produce(func(out string) error {
		var err error
		if apart {
			made, err = weave(cmd.Context(), out, all, label)
		} else {
			made, err = chain(cmd.Context(), out, all)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, m := range all {
		m.complain(cmd.ErrOrStderr())
	}
	fmt.Fprintln(cmd.ErrOrStderr(), copied(t.path, made))
	return nil
}

// openMember opens [NAME=]FILE. A name has nothing that a path may have.
func openMember(ctx context.Context, arg string) (*member, error) {
	name, path, named := strings.Cut(arg, "=")
	if !named || name == "" || strings.ContainsAny(name, `/\: `) {
		name, path, named = "", arg, false
	}
	in, err := openRecording(ctx, path)
	if err != nil {
		return nil, err
	}
	m := &member{opened: in, name: name, named: named, info: in.Info()}
	if m.info.Ticks == 0 {
		return nil, errors.Join(fmt.Errorf("%s has no ticks", path), in.Close())
	}
	if !named {
		if m.name = in.metadata()["instance"]; m.name == "" {
			m.name = m.host()
		}
	}
	return m, nil
}

// host is the name of the host, which every run of a recording should have.
func (m *member) host() string {
	for _, r := range m.info.Runs {
		if r.Run.Host != "" {
			return r.Run.Host
		}
	}
	return ""
}

// keepApart tells whether the recordings are of several hosts, and gives each
// its name.
func keepApart(all []*member) (bool, error) {
	names, named := map[string]bool{}, false
	for _, m := range all {
		named = named || m.named
		names[m.name] = true
	}
	if !named && len(names) == 1 {
		for i, m := range all[1:] {
			if before := all[i]; m.info.First <= before.info.Last {
				return false, hint(fmt.Errorf("%s and %s are of the same host and the same time", before.path, m.path),
					"cut one of them, or keep them apart with names: a=%s b=%s", before.path, m.path)
			}
		}
		return false, nil
	}
	if len(names) == len(all) && !names[""] {
		return true, nil
	}
	used := map[string]string{}
	for _, m := range all {
		if !m.named {
			m.name = strings.TrimSuffix(filepath.Base(m.path), filepath.Ext(m.path))
		}
		if other := used[m.name]; other != "" {
			return false, hint(usage{fmt.Errorf("%s and %s are both called %q", other, m.path, m.name)}, "give each a name: NAME=FILE")
		}
		used[m.name] = m.path
	}
	return true, nil
}

// chain puts recordings one behind the other.
func chain(ctx context.Context, out string, all []*member) (store.Copied, error) {
	var recordings []*store.Recording
	for _, m := range all {
		r, err := m.recording(ctx)
		if err != nil {
			return store.Copied{}, err
		}
		recordings = append(recordings, r)
	}
	return store.Copy(ctx, osFS, out, store.CopyOptions{}, recordings...)
}
