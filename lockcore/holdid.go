package lockcore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// HoldOf is [TokenOf] together with an id of the hold, 32 hexadecimal digits: the same for every call under one hold, nested ones too,
// and another for every other hold. A resource that keeps it beside the token can tell two holds with equal tokens apart, which a
// failover that lost a grant can make; see package fence. It is a digest: nobody can act as the holder with it.
func HoldOf(ctx context.Context, key string) (token int64, id string, ok bool) {
	h := validIn(ctx, key)
	if h == nil {
		return 0, "", false
	}
	// The holds of a batch share the id of their grant and differ in their tokens.
	sum := sha256.Sum256([]byte("hold\n" + h.grant.id + "\n" + strconv.FormatInt(h.token, 10)))
	return h.token, hex.EncodeToString(sum[:16]), true
}
