package asynqmw

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/internal/jsonkey"
	"github.com/holdfast-go/holdfast/lockcore"
)

// KeyFunc returns the key of a task. It is called once per delivery, from several goroutines.
// [ByJSON] and the other functions of this package make the usual ones. The Class of the key is the
// default of Terms.Name.
//
// The key names what must not be used twice at a time. If it is too broad, such as the type of the
// task, unrelated tasks wait for each other. If it is too narrow, such as a payload with a time in
// it, every task has another key.
//
//   - The error guard.Unguarded: the handler runs without a guard.
//   - Any other error, or a key that [guard.Key.Validate] does not accept: the task does not run,
//     asynq gets the error and retries, and the Observer gets event.NoKey.
//   - An error that wraps asynq.SkipRetry: the same, but asynq archives the task at once. asynq
//     keeps only the newest 10,000 archived tasks of a queue.
type KeyFunc func(ctx context.Context, t *asynq.Task) (guard.Key, error)

// KeysFunc returns the keys of a task that needs several, for [ExclusiveAll]: 1 to 16 different
// keys in any order. Duplicates count once. It is called like a [KeyFunc], and its errors have the
// same meaning. A list with too few or too many keys is a bad key.
type KeysFunc func(ctx context.Context, t *asynq.Task) ([]guard.Key, error)

const maxKeys = 16 // of a task, as of guard.ExclusiveAll and LimitedAll

// keys returns a LimitsFunc with the one key of f and no limit, or nil if f is nil.
func (f KeyFunc) keys() LimitsFunc {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, t *asynq.Task) ([]KeyLimit, error) {
		k, err := f(ctx, t)
		return []KeyLimit{{Key: k}}, err
	}
}

// keys returns a LimitsFunc with the keys of f and no limits, or nil if f is nil.
func (f KeysFunc) keys() LimitsFunc {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, t *asynq.Task) ([]KeyLimit, error) {
		keys, err := f(ctx, t)
		limits := make([]KeyLimit, len(keys))
		for i, k := range keys {
			limits[i].Key = k
		}
		return limits, err
	}
}

// checkKeys returns every problem of the keys of a task.
func checkKeys(keys []KeyLimit) error {
	var errs []error
	for _, k := range keys {
		errs = append(errs, k.Key.Validate())
	}
	if n := len(different(keys)); n < 1 || n > maxKeys {
		errs = append(errs, fmt.Errorf("the task has %d different keys, must have between 1 and %d", n, maxKeys))
	}
	return errtext.Join(errs...)
}

// different returns the different keys in byte order.
func different(keys []KeyLimit) []KeyLimit {
	sorted := slices.Clone(keys)
	slices.SortStableFunc(sorted, func(a, b KeyLimit) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return slices.CompactFunc(sorted, func(a, b KeyLimit) bool { return a.Key.String() == b.Key.String() })
}

// keyNames returns the names of keys.
func keyNames(keys []KeyLimit) []string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.Key.String()
	}
	return names
}

// className returns the different classes of keys, sorted and joined.
func className(keys []KeyLimit) string {
	var classes []string
	for _, k := range keys {
		if k.Key.Class != "" {
			classes = append(classes, k.Key.Class)
		}
	}
	slices.Sort(classes)
	return strings.Join(slices.Compact(classes), "+")
}

// ByTaskID returns a [KeyFunc] that makes a key of the task's queue and ID: task:QUEUE,ID. An ID is
// unique only in its queue. With Once, a retry after a success does nothing. Two tasks for the same
// work have different keys: use [ByJSON] for that. Without an asynq server the KeyFunc returns an
// error.
func ByTaskID() KeyFunc {
	return func(ctx context.Context, _ *asynq.Task) (guard.Key, error) {
		id, _ := asynq.GetTaskID(ctx)
		if id == "" {
			return guard.Key{Class: "task"}, errors.New("no task ID in ctx: call this inside an asynq handler")
		}
		onePayload(ctx)
		queue, _ := asynq.GetQueueName(ctx)
		return guard.Key{Class: "task", ID: jsonkey.Join(queue, id)}, nil
	}
}

// ByType returns a [KeyFunc] that makes a key of the task's type: type:TYPE. With Exclusive one
// task of the type runs at a time, with Limited at most n.
func ByType() KeyFunc {
	return func(_ context.Context, t *asynq.Task) (guard.Key, error) {
		return guard.Key{Class: "type", ID: t.Type()}, nil
	}
}

// ByPayload returns a [KeyFunc] that makes a key of the task's type and a digest of its payload:
// payload:TYPE,DIGEST. The payload counts byte by byte, so another timestamp or another order of
// fields makes another key.
func ByPayload() KeyFunc {
	return func(ctx context.Context, t *asynq.Task) (guard.Key, error) {
		onePayload(ctx)
		return guard.Key{Class: "payload", ID: jsonkey.Join(t.Type(), idempotency.Digest(nil, string(t.Payload())))}, nil
	}
}

// ByQueue returns a [KeyFunc] that makes a key of the task's queue: queue:QUEUE. With Exclusive one
// task of the queue runs at a time. Without an asynq server the KeyFunc returns an error.
func ByQueue() KeyFunc {
	return func(ctx context.Context, _ *asynq.Task) (guard.Key, error) {
		queue, _ := asynq.GetQueueName(ctx)
		if queue == "" {
			return guard.Key{Class: "queue"}, errors.New("no queue in ctx: call this inside an asynq handler")
		}
		return guard.Key{Class: "queue", ID: queue}, nil
	}
}

// ByHeader returns a [KeyFunc] that makes a key of a header of the task: CLASS:VALUE. The KeyFunc
// returns an error if the header is missing or empty. ByHeader panics on a bad class or an empty
// name. A class must not be empty or have a colon, and must be a valid Terms.Name.
func ByHeader(class, name string) KeyFunc {
	jsonkey.MustClass("asynqmw: ByHeader", class)
	if name == "" {
		panic("asynqmw: ByHeader: name must not be empty")
	}
	return func(_ context.Context, t *asynq.Task) (guard.Key, error) {
		k := guard.Key{Class: class, ID: t.Headers()[name]}
		if k.ID == "" {
			return k, fmt.Errorf("header %q is missing or empty", name)
		}
		return k, nil
	}
}

// ByJSON returns a [KeyFunc] that makes a key of a value in a JSON payload, at a JSON pointer (RFC
// 6901). ByJSON("account", "/account_id") makes account:42 of {"account_id": 42} and of
// {"account_id": "42"}.
//
//   - A string is used unchanged, a number with its text in the payload (42 and 42.0 are two keys),
//     a boolean as true or false.
//   - If the value is missing, an empty string, null, an object or an array, the KeyFunc returns an
//     error that names the pointer.
//   - The values of several pointers are joined by commas. In each of them a comma becomes %2C and
//     a percent sign %25, so that different lists make different keys. A single value is not
//     escaped.
//
// ByJSON panics on a bad class (see [ByHeader]), without a pointer, and on a pointer that RFC 6901
// does not allow.
func ByJSON(class string, pointers ...string) KeyFunc {
	key := jsonkey.New("asynqmw: ByJSON", class, pointers...)
	return func(_ context.Context, t *asynq.Task) (guard.Key, error) { return key(t.Payload()) }
}

// Join returns a [KeyFunc] that makes one key of several: Join(ByQueue(), ByJSON("account", "/id"))
// makes queue+account:critical,42. The IDs are joined like the values of [ByJSON]. The KeyFunc
// returns the first error of its parts, also guard.Unguarded. Join panics without a function and on
// a nil one.
func Join(keys ...KeyFunc) KeyFunc {
	if len(keys) == 0 {
		panic("asynqmw: Join: at least one KeyFunc is needed")
	}
	for _, key := range keys {
		if key == nil {
			panic("asynqmw: Join: a KeyFunc is nil")
		}
	}
	return func(ctx context.Context, t *asynq.Task) (guard.Key, error) {
		var classes, ids []string
		for _, key := range keys {
			k, err := key(ctx, t)
			if err == nil {
				err = k.Validate()
			}
			if err != nil {
				return guard.Key{Class: k.Class}, err
			}
			if k.Class != "" {
				classes = append(classes, k.Class)
			}
			ids = append(ids, k.ID)
		}
		return guard.Key{Class: strings.Join(classes, "+"), ID: jsonkey.Join(ids...)}, nil
	}
}

// OnceKey returns the key under which [Once] records a task of this type and key: OnceKey("charge",
// guard.Key{Class: "payment", ID: "7"}) is charge/payment:7. Use it for idempotency.Lookup and
// Clear, for guard.Token, and in tests. The first slash ends the type. In the type a slash becomes
// %2F and a percent sign %25.
func OnceKey(taskType string, k guard.Key) string { return jsonkey.OnceKey(taskType, k) }

// keyError is the error for a task without a usable key, fingerprint or limit.
type keyError struct {
	task string
	what string // "key", "fingerprint" or "limit"
	err  error
}

func (e *keyError) Error() string {
	return errtext.Prefix(fmt.Sprintf("asynqmw: no %s for a task of type %q", e.what, e.task), e.err).Error()
}
func (e *keyError) Unwrap() error        { return e.err }
func (e *keyError) Is(target error) bool { return target == lockcore.ErrNotRun }
func (e *keyError) ErrorType() string    { return "no_" + e.what }
