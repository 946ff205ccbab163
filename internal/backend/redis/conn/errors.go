package conn

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

// Broken reports whether an open connection ended before the reply.
func Broken(err error) bool {
	return !NoConnection(err) && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE))
}

// NotSentError is the error of a call that ended before it was sent. No duplicate of such a call
// can arrive.
type NotSentError struct{ Cause error }

func (e *NotSentError) Error() string { return "not sent: " + e.Cause.Error() }

// Unwrap returns Cause.
func (e *NotSentError) Unwrap() error { return e.Cause }

// NoConnection reports whether a call has got no connection, so it was not sent.
func NoConnection(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) || LoginRefused(err)
}

// dialError returns err as the error of a dial. addr may be nil.
func dialError(network string, addr net.Addr, err error) error {
	if NoConnection(err) {
		return err
	}
	return &net.OpError{Op: "dial", Net: network, Addr: addr, Err: err}
}

// MayTakeEffect reports whether the command may take effect although it got no reply.
func MayTakeEffect(err error) bool {
	return err != nil && !NoConnection(err) && !errors.As(err, new(redis.Error)) && !errors.Is(err, backend.ErrHeldUp) && !errors.As(err, new(*NotSentError))
}

// CommandErr returns the error of a command of a pipeline. exec is the error of Exec. If a new
// connection cannot log in, a client of one server returns the error only from Exec, and nothing
// was sent.
func CommandErr(cmd *redis.Cmd, exec error) error {
	if cmd.Err() == nil && cmd.Val() == nil {
		return exec
	}
	return cmd.Err()
}

// LoginRefused reports whether the server refused the login of a connection, for example while a
// password is rotated.
func LoginRefused(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "WRONGPASS") || redis.HasErrorPrefix(err, "NOAUTH"))
}

// Permanent reports whether a repeat would fail with the same error, because the error concerns the
// user or the key and is not temporary.
func Permanent(err error) bool {
	var re redis.Error
	if errors.As(err, new(*backend.DataError)) || errors.As(err, new(*wire.ReplyError)) {
		return true
	}
	if !errors.As(err, &re) {
		return errors.Is(err, redis.ErrClosed) || errors.Is(err, backend.ErrHeldUp) || errors.Is(err, backend.ErrUnsupported)
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

// Unreadable returns a DataError if an error reply reports data that no script writes. Otherwise it
// returns err. Some servers add text to the error of a script.
func Unreadable(err error, cmd wire.Command) error {
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

// UnknownReply reports whether a reply has an unknown form, so the effect of its script is unknown.
func UnknownReply(err error) bool { return err != nil && errors.As(err, new(*wire.ReplyError)) }

// SlotOnly reports whether an error concerns one slot of a cluster, and not its server.
func SlotOnly(err error) bool {
	var re redis.Error
	if !errors.As(err, &re) {
		return false
	}
	for _, p := range []string{"TRYAGAIN", "MOVED", "ASK", "CLUSTERDOWN"} {
		if strings.HasPrefix(re.Error(), p) {
			return true
		}
	}
	return false
}
