package guard

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// nest sets the Wait of a call without one, if the holds in ctx keep other work out and its own
// work has not begun: the call gives these keys back instead of waiting. Inside the run of another
// Once the work has begun. With AtMostOnce a refusal would be recorded there, so the call waits.
func (o *OnceOptions) nest(ctx context.Context, locks *lockcore.Locker) {
	if o.Terms.Wait != 0 {
		return
	}
	if _, holds := lockcore.Current(ctx); holds && locks.Internal().BeforeWork(ctx) { // Current is cheaper than Internal
		o.Terms.Wait = lockcore.NoWait //planted:waits-inside-a-hold
	}
}

// refusalError is the error of a run that ends by AtMostOnce with the error of a guard inside it,
// whose function did not run.
type refusalError struct{ error }

const refusalRecorded = "guard: AtMostOnce recorded the error of a guard inside of Once that did not run its function: " +
	"nest Exclusive outside of Once, or mark the error with NoEffect if nothing has happened yet"

func (e *refusalError) Unwrap() error { return e.error }

// explainRefusal returns err, the error of a run, with the remedy in its text, if the end of the
// run is about to record the error of a guard inside it that did not run its function. A mark on
// err is a decision of the program. If a Once inside has explained err, it stays as it is.
func (o *OnceOptions) explainRefusal(err error) (explained error, refused bool) {
	if o.Mode != AtMostOnce || !errors.Is(err, lockcore.ErrNotRun) || marked(err) || errors.As(err, new(*refusalError)) {
		return err, false
	}
	return &refusalError{errtext.Prefix(refusalRecorded, err)}, true
}

func marked(err error) bool {
	return errors.As(err, new(*noEffectError)) || errors.As(err, new(*unknownError)) || errors.As(err, new(*finalError))
}
