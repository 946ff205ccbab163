package operator

import (
	"context"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Doubt returns why a pause or limit of an exclusive key may have no effect: its name may be wrong. It
// returns "" if something is known of the key.
func Doubt(ctx context.Context, l *lockcore.Locker, k *Key) string {
	if k.Known() {
		return ""
	}
	if once, err := Inspect(ctx, l, event.KindOnce, k.Key, false); err == nil && once.Known() {
		return OneLine(k.Key) + " is a key of Once, and a pause or limit does not stop it."
	}
	return "Nothing is known of " + OneLine(k.Key) + ": no call holds it, waits for it or has used its rate lately. Is the name right?"
}
