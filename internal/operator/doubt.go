package operator

import (
	"context"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Doubt returns why a pause or a limit of an exclusive key may have no effect: its name may be wrong, or a
// limit does not bound its calls. It returns "" if nothing shows that.
func Doubt(ctx context.Context, l *lockcore.Locker, k *Key, limit bool) string {
	switch {
	case limit && k.State == lockcore.StateHeld:
		return "A call of Exclusive holds " + OneLine(k.Key) + ", and a limit bounds only calls of Limited, Shared and Throttled. A pause stops all."
	case k.Known():
		return ""
	}
	if once, err := Inspect(ctx, l, event.KindOnce, k.Key, false); err == nil && once.Known() {
		return OneLine(k.Key) + " is a key of Once, and a pause or limit does not stop it."
	}
	return "Nothing is known of " + OneLine(k.Key) + ": no call holds it, waits for it or has used its rate lately. Is the name right?"
}
