package holdfast_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// prose returns the lines of a comment that are no code.
func prose(comment string) (lines []string) {
	for line := range strings.Lines(comment) {
		if !strings.HasPrefix(line, "\t") {
			lines = append(lines, line)
		}
	}
	return lines
}

// The comments of a lower layer name no higher one: a reader of lockcore, event or fence need not know
// what is built on them.
func TestCommentsNameNoHigherLayer(t *testing.T) {
	higher := regexp.MustCompile(`\b(guard|asynqmw|httpmw|cronmw|doctor)\b`)
	files := 0
	for _, dir := range []string{"event", "fence", "lockcore"} {
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			files++
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range f.Comments {
				for _, line := range prose(c.Text()) {
					if higher.MatchString(line) {
						t.Errorf("%s: the comment names a higher layer: %s", set.Position(c.Pos()), line)
					}
				}
			}
		}
	}
	if files < 30 {
		t.Errorf("only %d files", files)
	}
}

// The documentation of a package has at most 600 words besides code, so that it fits on a few screens.
// The details are at the identifiers.
func TestPackageDocsAreShort(t *testing.T) {
	const most = 600
	docs := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".":
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" {
				return filepath.SkipDir // another module
			}
			return nil
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil || f.Doc == nil {
			return err
		}
		docs++
		words := 0
		for _, line := range prose(f.Doc.Text()) {
			for word := range strings.FieldsSeq(line) {
				if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
					words++
				}
			}
		}
		if words > most {
			t.Errorf("%s: the documentation of the package has %d words, may have %d", path, words, most)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if docs < 30 {
		t.Errorf("only %d packages have documentation", docs)
	}
}

// A program that imports only guard and lockcore, with go-redis, is raised to these modules and
// versions, and to no other. A module that only another package needs, such as asynq or
// OpenTelemetry, must not become a dependency of every program.
func TestGuardNeedsFewModules(t *testing.T) {
	t.Parallel()
	few := []string{
		"github.com/google/uuid",
		"github.com/redis/go-redis/v9",
		"github.com/cespare/xxhash/v2", "go.uber.org/atomic", "golang.org/x/sys", // of go-redis
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}",
		"./guard", "./lockcore", "github.com/redis/go-redis/v9")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := slices.Sorted(strings.Lines(string(out)))
	for _, module := range slices.Compact(modules) {
		path, version, _ := strings.Cut(strings.TrimSpace(module), " ")
		t.Logf("raised to %s %s", path, version)
		if !slices.Contains(few, path) {
			t.Errorf("guard needs one more module: %s", path)
		}
	}
	if len(modules) == 0 {
		t.Error("guard needs no module, not even go-redis")
	}
}
