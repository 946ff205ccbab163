package guard

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/internal/errtext"
)

// Unguarded is the error that a KeyFunc of a middleware returns for a job or request that needs no
// guard. The handler then runs as if there were no middleware. An error that wraps Unguarded has
// the same meaning. As with fs.SkipDir, no function of this module returns it. Only KeyFuncs may
// return it. From another function, such as httpmw.Scope, it is an ordinary error.
var Unguarded = errors.New("guard: run unguarded") //nolint:revive,staticcheck // it is no failure; fs.SkipDir has no Err either

const maxClass = 128 // bytes, the limit of Terms.Name

// Key names what a job or a request locks. The KeyFuncs of the middlewares return a Key. The
// functions of this package take the string. Key{Class: "account", ID: "42"} is the key
// "account:42". It excludes Exclusive(ctx, locks, "account:42", …) on the same Redis and prefix,
// and it is another key than "user:42".
type Key struct {
	// Class is the kind of key, such as "account". Spans and metrics show it unless Terms.Name is
	// set, so it must be of low cardinality. It has at most 128 bytes and no colon. An empty Class
	// adds nothing: the key is ID alone.
	Class string
	// ID identifies one key of its class. It must not be empty. The whole key has at most 512
	// bytes.
	ID string
}

// String returns CLASS:ID, or ID if Class is empty.
func (k Key) String() string {
	if k.Class == "" {
		return k.ID
	}
	return k.Class + ":" + k.ID
}

// Validate reports every problem of k at once. The middlewares call it for each key of a KeyFunc.
// It does not check the length of ID: for a key of more than 512 bytes [Exclusive] and [Once]
// return lockcore.ErrKey.
func (k Key) Validate() error {
	if k.ID != "" && len(k.Class) <= maxClass && !strings.Contains(k.Class, ":") {
		return nil
	}
	var errs []error
	if k.ID == "" {
		errs = append(errs, errors.New("guard: Key.ID is empty"))
	}
	if strings.Contains(k.Class, ":") {
		errs = append(errs, fmt.Errorf("guard: Key.Class is %q, must not have a colon", k.Class))
	}
	if len(k.Class) > maxClass {
		errs = append(errs, fmt.Errorf("guard: Key.Class is %d bytes long, must be at most %d bytes", len(k.Class), maxClass))
	}
	return errtext.Join(errs...)
}
