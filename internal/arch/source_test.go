// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	maxFileLines     = 500
	maxFunctionLines = 70
)

// tracked is every file git tracks, relative to the root of the repository.
// A tree that is not a git checkout cannot be checked and fails.
func tracked(t *testing.T) (root string, files []string) {
	t.Helper()
	out, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Fatalf("git: %v", err)
	}
	root = strings.TrimSpace(string(out))
	cmd := exec.Command("git", "ls-files")
	cmd.Dir = root
	out, err = cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	for _, f := range strings.Fields(string(out)) {
		if _, err := os.Stat(filepath.Join(root, f)); err == nil {
			files = append(files, f)
		}
	}
	return root, files
}

func read(t *testing.T, root, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// noComment are kinds of file that cannot hold a licence line, or that are
// made by a tool from files that do.
var noComment = regexp.MustCompile(`(^|/)(testdata|dist|vendor|LICENSES)/|` +
	`\.(o|png|json|sum|svg|rzr|golden|map)$|go\.mod$|\.gitignore$|\.gitattributes$|^VERSION$`)

// kernelSide are the files under the licence of the kernel.
var kernelSide = regexp.MustCompile(`^probes/.*\.(c|h|tsv)$|\.bpf\.c$`)

func TestEveryFileNamesItsLicence(t *testing.T) {
	root, files := tracked(t)
	for _, f := range files {
		if noComment.MatchString(f) && !kernelSide.MatchString(f) {
			continue
		}
		want := "SPDX-License-Identifier: Apache-2.0"
		if kernelSide.MatchString(f) {
			want = "SPDX-License-Identifier: GPL-2.0-only"
		}
		head, _, _ := bytes.Cut(append(read(t, root, f), "\n\n\n\n"...), []byte("\n\n\n"))
		if lines := bytes.SplitN(head, []byte("\n"), 5); !bytes.Contains(bytes.Join(lines[:min(4, len(lines))], nil), []byte(want)) {
			t.Errorf("%s: no line %q among the first four", f, want)
		}
	}
}

// foreign are words that say where something was made instead of what it is.
var foreign = regexp.MustCompile(`[ "(=]/wor` + `k/|https?://(registry|proxy|deb)\.`)

func TestNothingNamesTheMachineItWasMadeOn(t *testing.T) {
	root, files := tracked(t)
	for _, f := range files {
		for i, line := range bytes.Split(read(t, root, f), []byte("\n")) {
			if m := foreign.Find(line); m != nil && !strings.HasSuffix(f, ".o") {
				t.Errorf("%s:%d: %q", f, i+1, m)
			}
		}
	}
}

func TestFilesAreShort(t *testing.T) {
	root, files := tracked(t)
	source := regexp.MustCompile(`\.(go|ts|css|c|h|sh)$`)
	made := regexp.MustCompile(`(^|/)(vendor|dist|testdata)/|^probes/task/syscalls\.h$`)
	for _, f := range files {
		if !source.MatchString(f) || made.MatchString(f) {
			continue
		}
		if n := bytes.Count(read(t, root, f), []byte("\n")); n > maxFileLines {
			t.Errorf("%s has %d lines; more than %d are two ideas", f, n, maxFileLines)
		}
	}
}

func TestGoIsDocumentedAndFunctionsAreShort(t *testing.T) {
	root, files := tracked(t)
	documented := map[string]bool{}
	for _, f := range files {
		if !strings.HasSuffix(f, ".go") || strings.Contains(f, "testdata/") {
			continue
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, f, read(t, root, f), parser.ParseComments)
		if err != nil {
			t.Error(err)
			continue
		}
		dir := filepath.Dir(f)
		documented[dir] = documented[dir] || parsed.Doc != nil
		for _, d := range parsed.Decls {
			checkDeclaration(t, fset, f, d)
		}
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %s has no package comment", dir)
		}
	}
}

func checkDeclaration(t *testing.T, fset *token.FileSet, file string, d ast.Decl) {
	t.Helper()
	test := strings.HasSuffix(file, "_test.go")
	switch d := d.(type) {
	case *ast.FuncDecl:
		if lines := fset.Position(d.End()).Line - fset.Position(d.Pos()).Line + 1; lines > maxFunctionLines {
			t.Errorf("%s: %s has %d lines; the limit is %d", fset.Position(d.Pos()), d.Name.Name, lines, maxFunctionLines)
		}
		if !test && d.Doc == nil && d.Name.IsExported() && (d.Recv == nil || exportedReceiver(d)) {
			t.Errorf("%s: exported %s is not documented", fset.Position(d.Pos()), d.Name.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			if ts, ok := s.(*ast.TypeSpec); ok && !test && ts.Name.IsExported() && ts.Doc == nil && d.Doc == nil {
				t.Errorf("%s: exported type %s is not documented", fset.Position(ts.Pos()), ts.Name.Name)
			}
		}
	}
}

func exportedReceiver(d *ast.FuncDecl) bool {
	kind := d.Recv.List[0].Type
	if p, ok := kind.(*ast.StarExpr); ok {
		kind = p.X
	}
	if g, ok := kind.(*ast.IndexExpr); ok {
		kind = g.X
	}
	id, ok := kind.(*ast.Ident)
	return ok && id.IsExported()
}
