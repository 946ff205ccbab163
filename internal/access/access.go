// Package access gives the packages of this module the part of a lockcore.Locker that users do not
// see.
package access

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// Locker is the hidden part of a lockcore.Locker, see its method Internal.
type Locker struct {
	Backend backend.Backend
	// Report passes a lockcore.Event to the Observer, if there is one. A panic of the Observer
	// reaches the caller.
	Report func(ctx context.Context, event any)
}
