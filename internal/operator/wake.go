package operator

import (
	"context"
	"strings"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Wake asks the process that parked a task of a key most recently to wake the first one. It returns how
// many processes received that.
func Wake(ctx context.Context, l *lockcore.Locker, kind event.Kind, key string) (received int, err error) {
	b := access.Of(l).Backend
	stored := b.Key(backend.Kind(kind), key)
	if received, err = b.CallParkingLocker(ctx, &stored); err != nil {
		return 0, errtext.Wrap(lockcore.ErrUnavailable, err)
	}
	return received, nil
}

// Where returns what l uses: the kind of server, its address if that is known, and how the names of its keys
// begin there.
func Where(l *lockcore.Locker) string {
	b := access.Of(l).Backend
	text := b.Name()
	if at, ok := b.(interface{ Address() string }); ok {
		text += " " + at.Address()
	}
	if names, ok := strings.CutSuffix(StoredName(l, event.KindExclusive, "k"), ":x:{k}"); ok {
		text += ", keys " + names + ":*"
	}
	return text
}

// StoredName returns the name of the data of a key in Redis, which an error may have.
func StoredName(l *lockcore.Locker, kind event.Kind, key string) string {
	return access.Of(l).Backend.Key(backend.Kind(kind), key).Stored[0]
}
