package security_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// recipe returns the block of docs/security.md that creates a user: begin is a line break for the line for the
// prompt of redis-cli.
func recipe(t *testing.T, begin, user string) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/security.md")
	check(t, err)
	found := regexp.MustCompile("```"+begin+"ACL SETUSER "+user+" (?s:.*?)```").FindAllString(string(b), -1)
	if len(found) != 1 {
		t.Fatalf("the page has %q", found)
	}
	_, text, _ := strings.Cut(found[0], "\n")
	return strings.TrimSuffix(text, "\n```")
}

// The page shows exactly the rights with which the tests run. It has one line for the prompt of
// redis-cli, and for a Locker one line for a shell that passes redis-cli the same words.
func TestPublishedRights(t *testing.T) {
	for user, rights := range map[string]string{
		"holdfast": redistest.Keys + " " + redistest.Channels + " " + redistest.Commands,
		"reader":   readRights,
		"resource": fenceRights,
	} {
		want := "ACL SETUSER " + user + " reset on >PASSWORD " + rights
		if prompt := recipe(t, "\n", user); prompt != want {
			t.Errorf("the page says %q, want %q", prompt, want)
		}
		if user != "holdfast" {
			continue
		}
		shell := recipe(t, "sh\nredis-cli ", user)
		cmd := exec.CommandContext(t.Context(), "sh", "-c", `redis_cli() { printf '%s\n' "$*"; }; `+strings.Replace(shell, "redis-cli", "redis_cli", 1))
		cmd.Dir = t.TempDir() // a > in the line would write there
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != want+"\n" {
			t.Errorf("a shell makes %q of %q, %v", out, shell, err)
		}
	}
}

// Other pages show the same rights.
func TestPublishedRightsElsewhere(t *testing.T) {
	for name, word := range map[string]string{
		"docs/operate.md":  redistest.Commands,
		"docs/security.md": "| `+wait` | ", "docs/security.md#": "| `+scan` | ",
	} {
		b, err := os.ReadFile("../../" + strings.TrimSuffix(name, "#"))
		check(t, err)
		if !strings.Contains(strings.Join(strings.Fields(string(b)), " "), word) {
			t.Errorf("%s does not contain %s", name, word)
		}
	}
}

// The line of the page, with a password, creates the user: on, with only that password.
func TestRecipesWork(t *testing.T) {
	s := redistest.Real(t)
	for _, user := range []string{"holdfast", "reader", "resource"} {
		var args []any
		for word := range strings.FieldsSeq(recipe(t, "\n", user)) {
			args = append(args, word)
		}
		check(t, s.Client(t).Do(t.Context(), args...).Err())
		got, err := s.Client(t).Do(t.Context(), "ACL", "LIST").StringSlice()
		check(t, err)
		line := ""
		for _, l := range got {
			if strings.HasPrefix(l, "user "+user+" ") {
				line = l
			}
		}
		if !strings.Contains(line, " on ") || strings.Contains(line, "nopass") || strings.Count(line, " #") != 1 || strings.Contains(line, "+@all") {
			t.Errorf("the user is %q", line)
		}
	}
}
