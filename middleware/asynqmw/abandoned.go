package asynqmw

import (
	"context"
	"errors"
	"strings"
	"unicode"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/lockcore"
)

// archivedError is an error for which asynq archives the task: no retry can change the reason.
type archivedError struct {
	error
	text string // what the operator can do
}

func (e *archivedError) Error() string   { return e.error.Error() + e.text }
func (e *archivedError) Unwrap() []error { return []error{e.error, asynq.SkipRetry} }

// archived returns err, or an error that makes asynq archive the task. The reasons are an abandoned
// key under guard.AtMostOnce, and a recorded failure. asynq's retries can go on for weeks, and
// would run the handler again when the key is forgotten. Under guard.AtMostOnce another payload is
// a reason too: after the operator has cleared the key, a retry would run that payload.
func (d *decorator) archived(ctx context.Context, key string, mode guard.Mode, err error) error {
	if errors.As(err, new(*guard.RecordedError)) || mode == guard.AtMostOnce && errors.As(err, new(*lockcore.MismatchError)) {
		return &archivedError{err, ""}
	}
	if !errors.Is(err, lockcore.ErrAbandoned) {
		return err
	}
	var text strings.Builder
	text.WriteString("; the task is archived. If its effect is missing, clear the key")
	if b, ok := access.Of(d.locks).Backend.(interface{ Prefix() string }); ok {
		text.WriteString(" (" + clearCommand(b.Prefix(), key) + ")")
	}
	text.WriteString(" and run the task again")
	if id, ok := asynq.GetTaskID(ctx); ok {
		queue, _ := asynq.GetQueueName(ctx)
		text.WriteString(" (asynq task run --queue=" + shellQuote(queue) + " --id=" + shellQuote(id) + ")")
	}
	return &archivedError{err, text.String()}
}

// clearCommand returns the shell command that clears a once key.
func clearCommand(prefix, key string) string {
	command := "holdfast clear -once "
	if prefix != "holdfast" { // the default
		command += "-prefix " + shellQuote(prefix) + " "
	}
	if strings.HasPrefix(key, "-") { // not a flag
		command += "-- "
	}
	return command + shellQuote(key)
}

// shellQuote returns s as one word of a shell. A word with characters that are not printable has
// the form $'…' of bash and zsh, so that it passes through a log and a terminal unchanged.
func shellQuote(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	const hex = "0123456789abcdef"
	var word strings.Builder
	word.WriteString("$'")
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\'' || c == '\\':
			word.WriteString(`\` + string(rune(c)))
		case c < ' ' || c > '~':
			word.WriteString(`\x` + string(hex[c>>4]) + string(hex[c&15]))
		default:
			word.WriteByte(c)
		}
	}
	return word.String() + "'"
}
