package rows

import (
	"bytes"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
)

const minute = rules.Span(60_000_000)

// plain returns the plain hold of a row.
func (r *Row) plain(kind backend.Kind) rules.Key {
	k := rules.Key{
		Plain: true, State: rules.Held, Owner: r.Owner, Locker: r.Locker, Holder: r.Holder, Fingerprint: r.Fingerprint,
		Token: r.Token, End: r.End, Length: r.Length, Expires: r.Expires,
	}
	if kind == backend.KindOnce {
		k.Attempts = 1
	}
	return k
}

// decode returns the key of a row without what has expired. last is the greatest token that may have
// been used.
//
// A row whose data has expired still has its last token. If the clock is not past it, because the clock
// was set back, the key gets it, so that tokens grow.
func (r *Row) decode(kind backend.Kind) (k rules.Key, last int64, err error) {
	switch {
	case r.Data != nil:
		if k, err = rules.Decode(r.Data); err != nil {
			return k, r.Token, err
		}
		if k.Plain && k.State == rules.Done && k.Token == 0 {
			k.Holder, k.Fingerprint, k.Token, k.Expires = r.Holder, r.Fingerprint, r.Token, r.Expires
		}
	case r.Owner != "":
		k = r.plain(kind)
	}
	last = max(r.Token, k.GreatestToken())
	if k.Expire(r.Now); k.Token == 0 && k.Used == 0 && last >= r.Now {
		k.Used, k.Expires = last, max(k.Expires, r.Now+minute) //planted:rows-token-remembered
	}
	return k, last, nil
}

// encode returns the row of a key. last is that of decode, and now the time of the rule. A rule forgets
// a token only when the clock is past it, so of a forgotten one at most now-1 was used.
func encode(kind backend.Kind, k *rules.Key, last int64, now rules.Instant) Row {
	due := max(k.NextEnd(now), now)/Hour + 2
	if k.Plain && (k.State == rules.Held || k.State == rules.Done) {
		r := Row{Holder: k.Holder, Fingerprint: k.Fingerprint, Token: k.Token, Expires: k.Expires, Due: due}
		if k.State == rules.Held {
			r.Owner, r.Locker, r.End, r.Length = k.Owner, k.Locker, k.End, k.Length
			if only := r.plain(kind); equal(&only, k) {
				return r
			}
		} else if k.Token > 0 {
			rest := *k
			rest.Holder, rest.Fingerprint, rest.Token, rest.Expires = "", "", 0, 0
			r.Data = rules.Encode(rest)
			return r
		}
	}
	r := Row{Due: due}
	r.Token = max(k.GreatestToken(), min(last, now-1)) //planted:rows-token-kept
	if !k.Gone() {
		r.Data = rules.Encode(*k)
	}
	return r
}

func equal(a, b *rules.Key) bool { return bytes.Equal(rules.Encode(*a), rules.Encode(*b)) }

// unchanged reports whether a rule has changed nothing that must be written. That a plain hold becomes
// an ordinary one is no change by itself.
func unchanged(before, after rules.Key) bool {
	if before.Plain && !after.Plain && after.Expires > before.Expires && after.Expires <= before.Expires+1000 { // see rules.Key
		after.Plain, after.Expires = true, before.Expires
	}
	return equal(&before, &after)
}
