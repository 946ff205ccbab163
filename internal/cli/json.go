package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/operator"
)

// keys is the output of ls, show, revoke, clear, pause, limit and wake with -json.
type keys struct {
	AsOf     time.Time          `json:"as_of"`
	Complete bool               `json:"complete"`           // false: the list of ls ends early
	Action   string             `json:"action,omitempty"`   // revoked, cleared, paused, resumed, restricted, unrestricted, sent; "" if nothing was done
	Received *int               `json:"received,omitempty"` // wake: processes that received the request
	Keys     []operator.Holding `json:"keys"`
}

func (sh *shell) printKeys(action string, all ...operator.Key) error {
	return sh.print(keysOf(action, all...))
}

func keysOf(action string, all ...operator.Key) keys {
	k := keys{AsOf: now(), Complete: true, Action: action, Keys: []operator.Holding{}}
	for i := range all {
		k.Keys = append(k.Keys, all[i].JSON())
	}
	return k
}

// now returns the time for as_of.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

// print prints v as JSON.
func (sh *shell) print(v any) error {
	text, err := jsonText(v, "")
	if err == nil {
		_, err = fmt.Fprintln(sh.out, text)
	}
	return err
}

// jsonText returns v as JSON, in lines of which all but the first begin with prefix. Characters that
// a terminal does not print become escapes; package json escapes only those below a space.
func jsonText(v any, prefix string) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent(prefix, "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	var out strings.Builder
	for _, r := range strings.TrimSuffix(b.String(), "\n") {
		switch {
		case r == '\n' || r != utf8.RuneError && unicode.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String(), nil
}
