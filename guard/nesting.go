package guard

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// nest sets Terms.Wait to NoWait if the program has not set it, the call is inside a hold of
// another key, and its work has not begun. So the call fails at once, and the outer key is free for
// other work. Inside the run of another Once the work has begun. With AtMostOnce a refusal would be
// recorded there, so the call waits.
func (o *OnceOptions) nest(ctx context.Context) {
	if o.Terms.Wait != 0 {
		return
	}
	if access.BeforeWork(ctx) {
		o.Terms.Wait = lockcore.NoWait //planted:waits-inside-a-hold
	}
}

// refusalError is the error of a run under AtMostOnce whose function returned the error of an inner
// guard that did not run its own function.
type refusalError struct{ error }

const refusalRecorded = "guard: AtMostOnce recorded the error of a guard inside of Once that did not run its function: " +
	"nest Exclusive outside of Once, or mark the error with NoEffect if nothing has happened yet"

func (e *refusalError) Unwrap() error { return e.error }

// explainRefusal returns err, the error of a run. If AtMostOnce is about to record it, and it comes
// from an inner guard that did not run its function, explainRefusal adds the remedy to its text. It
// does not change an error that the program has marked, because the mark is a decision of the
// program, or one that a Once inside has explained.
func (o *OnceOptions) explainRefusal(err error) (explained error, refused bool) {
	if o.Mode != AtMostOnce || !errors.Is(err, lockcore.ErrNotRun) || marked(err) || errors.As(err, new(*refusalError)) {
		return err, false
	}
	return &refusalError{errtext.Prefix(refusalRecorded, err)}, true
}

func marked(err error) bool {
	return errors.As(err, new(*noEffectError)) || errors.As(err, new(*unknownError)) || errors.As(err, new(*finalError))
}
