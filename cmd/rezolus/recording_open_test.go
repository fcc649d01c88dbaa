// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// runHere runs a command in this process.
func runHere(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out, warnings bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&warnings)
	err = root.ExecuteContext(context.Background())
	return out.String(), err
}

// TestFilesOfTheRustImplementation works with a file that its libraries wrote.
func TestFilesOfTheRustImplementation(t *testing.T) {
	file := "../../internal/export/parquet/testdata/metriken.parquet"
	t.Setenv("TMPDIR", t.TempDir())
	before, err := runHere(t, "parquet", "convert", file, "-o", "-", "--format", "jsonl")
	if err != nil || before == "" {
		t.Fatalf("%d bytes, error %v", len(before), err)
	}
	dir := t.TempDir()
	rzr, wide := filepath.Join(dir, "x.rzr"), filepath.Join(dir, "x.parquet")
	for _, args := range [][]string{{"convert", file, "-o", rzr}, {"convert", rzr, "-o", wide}, {"check", rzr}, {"check", wide}, {"check", file}} {
		if _, err := runHere(t, append([]string{"recording"}, args...)...); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
	}
	for _, again := range []string{rzr, wide} {
		after, err := runHere(t, "recording", "convert", again, "-o", "-", "--format", "jsonl")
		if err != nil || lines(after) != lines(before) {
			t.Errorf("%s has %d bytes of rows, not the %d of the original (error %v)", again, len(after), len(before), err)
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("%v are left, error %v", left, err)
	}
}

// lines are the rows of each tick, sorted: the order of sources is not kept.
func lines(text string) string {
	all := strings.Split(text, "\n")
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// TestAnInterruptLeavesNothing converts with a context that has ended.
func TestAnInterruptLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "x.rzr")
	f := fabrication{host: "alpha", interval: 1e8, ticks: 500}
	if err := f.write(file); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	for _, out := range []string{"y.rzr", "y.parquet", "y.csv"} {
		root := newRoot()
		root.SetArgs([]string{"recording", "convert", file, "-o", filepath.Join(dir, out)})
		root.SetErr(new(bytes.Buffer))
		if err := root.ExecuteContext(ctx); err == nil {
			t.Errorf("%s: no error", out)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("%v are left, error %v", left, err)
	}
}
