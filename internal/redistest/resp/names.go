package resp

import (
	"crypto/sha1" // Redis names a script by it
	"encoding/hex"
	"regexp"
	"strings"
	"sync"
)

// Names records the titles of the scripts that it sees. The zero value is ready to use, also by
// several goroutines.
type Names struct {
	mu    sync.Mutex
	known map[string]string // by SHA-1
}

var title = regexp.MustCompile(`(?m)^--\s*([\w-]+)\.lua:`)

// Script returns the SHA-1 of the script that a request loads or runs, or "".
func (n *Names) Script(args []string) (sha string) {
	switch {
	case len(args) < 2:
		return ""
	case is(args[0], "EVALSHA"), is(args[0], "EVALSHA_RO"):
		return strings.ToLower(args[1])
	case is(args[0], "EVAL"), is(args[0], "EVAL_RO"):
		return n.learn(args[1])
	case is(args[0], "SCRIPT") && is(args[1], "LOAD") && len(args) == 3:
		return n.learn(args[2])
	}
	return ""
}

// Of returns the name of a script from its title, a line `-- acquire.lua: …`. It is "" until Names has
// seen the source.
func (n *Names) Of(sha string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known[sha]
}

func (n *Names) learn(source string) string {
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	if m := title.FindStringSubmatch(source); m != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.known == nil {
			n.known = make(map[string]string)
		}
		n.known[sha] = m[1]
	}
	return sha
}

// Handshake reports whether a request belongs to the setup of a connection.
func Handshake(args []string) bool {
	if len(args) == 0 {
		return true
	}
	for _, name := range []string{"HELLO", "AUTH", "SELECT", "CLIENT", "READONLY", "PING", "INFO", "CONFIG"} {
		if is(args[0], name) {
			return true
		}
	}
	return false
}

// Subscribes reports whether the replies to a request are all pushes.
func Subscribes(args []string) bool {
	return len(args) > 0 && strings.HasSuffix(strings.ToUpper(args[0]), "SUBSCRIBE")
}

func is(s, name string) bool { return strings.EqualFold(s, name) }
