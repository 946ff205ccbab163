package rivermw

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/internal/jsonkey"
	"github.com/holdfast-go/holdfast/lockcore"
)

// KeyFunc returns the key of a job. It is called once for each time that River works the job, from
// several goroutines. The Class of the key is the default of Terms.Name.
//
// The key names what must not be used twice at a time. If it is too broad, such as the kind of the
// job, unrelated jobs wait for each other. If it is too narrow, such as args with a time in them,
// every job has another key.
//
//   - The error guard.Unguarded: the job runs without a guard.
//   - Any other error, or a key that [guard.Key.Validate] does not accept: the job does not run and
//     River cancels it, because its args do not change. The Observer gets event.NoKey.
type KeyFunc func(ctx context.Context, job *rivertype.JobRow) (guard.Key, error)

// ByJSON returns a [KeyFunc] that makes a key of a value in the args, at a JSON pointer (RFC 6901).
// ByJSON("account", "/account_id") makes account:42 of {"account_id": 42} and of
// {"account_id": "42"}, so jobs of several kinds may have the same key.
//
//   - A string is used unchanged, a number with its text in PostgreSQL, a boolean as true or false.
//   - If the value is missing, an empty string, null, an object or an array, the KeyFunc returns an
//     error that names the pointer.
//   - The values of several pointers are joined by commas. In each of them a comma becomes %2C and
//     a percent sign %25. A single value is not escaped.
//
// ByJSON panics on a class that is empty, has a colon or is not a valid Terms.Name, without a
// pointer, and on a pointer that RFC 6901 does not allow.
func ByJSON(class string, pointers ...string) KeyFunc {
	key := jsonkey.New("rivermw: ByJSON", class, pointers...)
	return func(_ context.Context, job *rivertype.JobRow) (guard.Key, error) { return key(job.EncodedArgs) }
}

// ByArgs returns a [KeyFunc] that makes a key of the args of one kind of job:
//
//	rivermw.ByArgs(func(a ChargeArgs) guard.Key { return guard.Key{Class: "account", ID: a.Account} })
//
// Jobs of other kinds run without a guard, so that it may be in river.Config.Middleware. The KeyFunc
// returns an error if the args do not decode. ByArgs panics if key is nil.
func ByArgs[T river.JobArgs](key func(T) guard.Key) KeyFunc {
	if key == nil {
		panic("rivermw: ByArgs: key must not be nil")
	}
	var zero T
	kinds := []string{zero.Kind()}
	if old, ok := any(zero).(river.JobArgsWithKindAliases); ok {
		kinds = append(kinds, old.KindAliases()...)
	}
	return func(_ context.Context, job *rivertype.JobRow) (guard.Key, error) {
		if !slices.Contains(kinds, job.Kind) {
			return guard.Key{}, guard.Unguarded
		}
		var args T
		if err := json.Unmarshal(job.EncodedArgs, &args); err != nil {
			return guard.Key{}, fmt.Errorf("the args do not decode: %w", err)
		}
		return key(args), nil
	}
}

// ByJobID returns a [KeyFunc] that makes a key of the job's ID: job:17. With [Once], River may bring
// a job again that has succeeded, and it does not run. Two jobs for the same work have different
// keys: use [ByJSON] or [ByArgs] for that.
func ByJobID() KeyFunc {
	return func(_ context.Context, job *rivertype.JobRow) (guard.Key, error) {
		return guard.Key{Class: "job", ID: strconv.FormatInt(job.ID, 10)}, nil
	}
}

// OnceKey returns the key under which [Once] records a job of this kind and key: OnceKey("charge",
// guard.Key{Class: "payment", ID: "7"}) is charge/payment:7. Use it for idempotency.Lookup and
// Clear, for guard.Token, and in tests. The first slash ends the kind. In the kind a slash becomes
// %2F and a percent sign %25.
func OnceKey(kind string, k guard.Key) string { return jsonkey.OnceKey(kind, k) }

// keyError is the error for a job without a usable key or fingerprint.
type keyError struct {
	kind, what string
	err        error
}

func (e *keyError) Error() string {
	return errtext.Prefix(fmt.Sprintf("rivermw: no %s for a job of kind %q", e.what, e.kind), e.err).Error()
}
func (e *keyError) Unwrap() error        { return e.err }
func (e *keyError) Is(target error) bool { return target == lockcore.ErrNotRun }
func (e *keyError) ErrorType() string    { return "no_" + e.what }
