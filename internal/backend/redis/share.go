package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// shareKeys returns the names of the hash, the queue and the shares of a key.
func shareKeys(key *backend.Key) []string {
	return []string{key.Stored[0], key.Stored[1], sharesName(key.Stored[0])}
}

// shareText returns the text of a request for a share in the scripts, see shares.lua.
func shareText(id string, s backend.Share) string {
	return fmt.Sprintf("%s/%d/%d/", id, s.Limit, s.Weight)
}

func (b *Backend) acquireShare(r *backend.AcquireRequest) []any {
	return listOf(shareKeys(r.Key), shareText(r.ID, r.Share), b.o.Locker, micros(r.Lease), flag(r.Queue), r.Holder, queueKeep, reservation,
		b.channels, flag(b.conn.single))
}

func (b *Backend) releaseShare(r *backend.ReleaseRequest, now time.Time) []any {
	cooldown := time.Duration(0)
	if !r.CoolUntil.IsZero() {
		cooldown = max(r.CoolUntil.Sub(now), 0)
	}
	return listOf(shareKeys(r.Key), shareText(r.ID, r.Share), "", millis(r.Retention), flag(r.Repeated), reservation, b.channels, flag(b.conn.single),
		micros(cooldown), "")
}

func (b *Backend) withdrawShare(r *backend.WithdrawRequest, repeated bool) []any {
	return listOf(shareKeys(r.Key), shareText(r.ID, r.Share), b.o.Locker, millis(r.Retention), flag(repeated), reservation, b.channels, flag(b.conn.single),
		0, encodeWake(r.Key))
}

// renewShareArgs returns the arguments of renew_share.lua.
func renewShareArgs(r *backend.RenewRequest) []any {
	return []any{shareText(r.ID, r.Share), micros(r.Lease), r.Holder}
}

func (b *Backend) extendShare(ctx context.Context, r *backend.RenewRequest) (reply []any, sent time.Time, err error) {
	return b.conn.insist(ctx, b.conn.ends, renewShareScript, shareKeys(r.Key), renewShareArgs(r)...)
}

// decodeShares decodes the part of a reply of inspect.lua about a shared key, from reply[16] on.
func decodeShares(s *backend.Status, reply []any) {
	s.State, s.Weights = backend.StateShared, small(reply, 16)
	for i := 17; i+4 < len(reply); i += 5 {
		h := backend.ShareHeld{Remaining: span(reply, i+1), HeldFor: span(reply, i+2), Locker: text(reply, i+3), Holder: text(reply, i+4)}
		member := text(reply, i)
		h.Cooling = len(member) > 0 && member[0] == 'c'
		h.Share = parseShare(member)
		s.Shares = append(s.Shares, h)
	}
}

// parseShare returns the share that a member of the set of shares contains. For a text that no
// script writes, it returns the zero value.
func parseShare(member string) (s backend.Share) {
	for i := range len(member) {
		if member[i] == '/' {
			if _, err := fmt.Sscanf(member[i:], "/%d/%d/", &s.Limit, &s.Weight); err != nil {
				return backend.Share{}
			}
			return s
		}
	}
	return s
}
