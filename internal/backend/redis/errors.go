package redis

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// broken reports whether an open connection ended before the reply.
func broken(err error) bool {
	return !noConnection(err) && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE))
}

// notSentError is the error of a call that ended before it was sent. No duplicate of such a call
// can arrive.
type notSentError struct{ cause error }

func (e *notSentError) Error() string { return "not sent: " + e.cause.Error() }
func (e *notSentError) Unwrap() error { return e.cause }

// noConnection reports whether a call has got no connection, so it was not sent.
func noConnection(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) || loginRefused(err)
}

// dialError returns err as the error of a dial. addr may be nil.
func dialError(network string, addr net.Addr, err error) error {
	if noConnection(err) {
		return err
	}
	return &net.OpError{Op: "dial", Net: network, Addr: addr, Err: err}
}

// mayTakeEffect reports whether the command may take effect although it got no reply.
func mayTakeEffect(err error) bool {
	return err != nil && !noConnection(err) && !errors.As(err, new(redis.Error)) && !errors.Is(err, backend.ErrHeldUp) && !errors.As(err, new(*notSentError))
}

// commandErr returns the error of a command of a pipeline. exec is the error of Exec. If a new
// connection cannot log in, a client of one server returns the error only from Exec, and nothing
// was sent.
func commandErr(cmd *redis.Cmd, exec error) error {
	if cmd.Err() == nil && cmd.Val() == nil {
		return exec
	}
	return cmd.Err()
}

// loginRefused reports whether the server refused the login of a connection, for example while a
// password is rotated.
func loginRefused(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "WRONGPASS") || redis.HasErrorPrefix(err, "NOAUTH"))
}

// permanent reports whether a repeat would fail with the same error, because the error concerns the
// user or the key and is not temporary.
func permanent(err error) bool {
	var re redis.Error
	if errors.As(err, new(*backend.DataError)) || errors.As(err, new(*wire.ReplyError)) {
		return true
	}
	if !errors.As(err, &re) {
		return errors.Is(err, redis.ErrClosed) || errors.Is(err, backend.ErrHeldUp)
	}
	text := re.Error()
	for _, p := range []string{"-READONLY", "-OOM", "-MISCONF", "-NOREPLICAS"} {
		if strings.Contains(text, p) { // Contains, because Redis 6 puts the error of a command in a script into "ERR Error running script"
			return false
		}
	}
	for _, p := range []string{"NOPERM", "WRONGTYPE", "NOAUTH", "WRONGPASS", "ERR unknown", "ERR Error", "ERR user_script", "ERR The user executing", "ERR ACL failure"} {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	return false
}

// unreadable returns a DataError if an error reply reports data that no script writes. Otherwise it
// returns err. Some servers add text to the error of a script.
func unreadable(err error, cmd wire.Command) error {
	var re redis.Error
	if !errors.As(err, &re) {
		return err
	}
	if _, text, ok := strings.Cut(re.Error(), "BADFIELD "); ok {
		field, _, _ := strings.Cut(text, " ")
		return &backend.DataError{Stored: cmd.Key(), Field: field, Reply: err}
	}
	if strings.Contains(re.Error(), "WRONGTYPE") {
		return &backend.DataError{Stored: cmd.Key(), Reply: err}
	}
	return err
}

// unknownReply reports whether a reply has an unknown form, so the effect of its script is unknown.
func unknownReply(err error) bool { return err != nil && errors.As(err, new(*wire.ReplyError)) }
