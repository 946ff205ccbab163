package resp_test

import (
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest/resp"
)

// Every proper prefix of a value is incomplete, the whole value is complete, and Split ignores the
// bytes after it.
func TestSplit(t *testing.T) {
	for _, whole := range []string{
		"+OK\r\n", "-ERR x\r\n", ":1\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "(123\r\n",
		"$-1\r\n", "$0\r\n\r\n", "$4\r\na\r\nb\r\n", "!3\r\nERR\r\n", "=7\r\ntxt:abc\r\n",
		"*-1\r\n", "*0\r\n", "*2\r\n$1\r\na\r\n*1\r\n:2\r\n", "~1\r\n+a\r\n",
		"%1\r\n+a\r\n:1\r\n", "|1\r\n+ttl\r\n:3\r\n$1\r\nx\r\n", ">2\r\n+message\r\n$2\r\nhi\r\n",
	} {
		for cut := range whole {
			if n, _, ok := resp.Split([]byte(whole[:cut])); ok {
				t.Errorf("Split(%q) is complete after %d bytes", whole[:cut], n)
			}
		}
		n, push, ok := resp.Split([]byte(whole + "+next\r\n"))
		if !ok || n != len(whole) {
			t.Errorf("Split(%q…) = %d, %t; want %d, true", whole, n, ok, len(whole))
		}
		if want := whole[0] == '>'; push != want {
			t.Errorf("Split(%q…): push = %t, want %t", whole, push, want)
		}
	}
}

func TestArgs(t *testing.T) {
	got := resp.Args([]byte("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n\r\n\r\n"))
	if want := []string{"SET", "k", "\r\n\r\n"}; !slices.Equal(got, want) {
		t.Errorf("Args = %q, want %q", got, want)
	}
	for _, bad := range []string{"", "PING\r\n", "*1\r\n:1\r\n", "*2\r\n$1\r\na\r\n", "*1\r\n$9\r\na\r\n", "*1\r\n$-1\r\n"} {
		if got := resp.Args([]byte(bad)); got != nil {
			t.Errorf("Args(%q) = %q, want nil", bad, got)
		}
	}
}

// Names knows a script by its title after it has seen the source, also when EVALSHA runs it.
func TestNames(t *testing.T) {
	var n resp.Names
	const source = "-- lease.lua is shared\nlocal x\n-- acquire.lua: KEYS[1]=lock\nreturn 1"
	const other = "return 1"
	sha := n.Script([]string{"eval", source, "0"})
	if got := n.Of(n.Script([]string{"EVALSHA", sha, "0"})); got != "acquire" {
		t.Errorf("name is %q, want acquire", got)
	}
	if got := n.Of(n.Script([]string{"SCRIPT", "LOAD", other})); got != "" {
		t.Errorf("a script without a title is called %q", got)
	}
	if got := n.Script([]string{"GET", "k"}); got != "" {
		t.Errorf("GET runs script %q", got)
	}
}

// For any bytes, Split returns a length of at least one byte that does not exceed the input.
func FuzzSplit(f *testing.F) {
	f.Add([]byte("*2\r\n$1\r\na\r\n:1\r\n"))
	f.Add([]byte("|1\r\n+a\r\n:1\r\n%-1\r\n"))
	f.Add([]byte("\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, _, ok := resp.Split(b)
		if ok && (n < 1 || n > len(b)) {
			t.Errorf("Split(%q) = %d of %d bytes", b, n, len(b))
		}
		resp.Args(b)
	})
}
