package wire_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// A notification contains the key. Other text, which any client may send, is ignored.
func TestDecodeWake(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := backend.Key{Kind: kinds().Draw(t, "kind"), Name: nasty().Draw(t, "name")}
		want := backend.Notification{Event: backend.EventWake, Kind: key.Kind, Name: key.Name}
		if got, ok := wire.DecodeNotification(wire.EncodeWake(&key)); !ok || got != want {
			t.Errorf("%+v, %v, want %+v", got, ok, want)
		}
	})
	long := strings.Repeat("k", 512)
	if n, ok := wire.DecodeNotification("px" + long); !ok || n.Name != long {
		t.Errorf("the longest key is decoded: %v", ok)
	}
	for _, payload := range []string{"", "p", "px", "po", "pk", "p:x", "xk", "qxk", "Pxk", "px" + long + "k"} {
		if n, ok := wire.DecodeNotification(payload); ok {
			t.Errorf("%.20q is decoded as %+v", payload, n)
		}
	}
}
