package quorum

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// tokens proposes the token of a grant, so that the masters grant equal tokens. A master grants the
// greatest of its clock, its next token and the proposal. So the proposal is greater than all tokens
// that this process has seen, and later than the clocks of the masters.
type tokens struct {
	mu   sync.Mutex
	seen int64 // the greatest token that any grant of this process may use
	lead int64 // µs by which the clocks of the masters were ahead of this one's when they granted

	granted, raised atomic.Int64 // grants, and those of them whose tokens were raised
}

// Rounds returns the number of grants, and how many of them needed a second round, which raised their
// tokens.
func (b *Backend) Rounds() (granted, raised int64) {
	return b.tokens.granted.Load(), b.tokens.raised.Load()
}

const (
	leadStep = 1000 // µs that a proposal is ahead of the latest clock of the masters
	// maxAhead is how far a proposal may be ahead of this process's clock, in µs: at most the shortest
	// lease, because a free key forgets its token, and then only the clocks make tokens grow. If a
	// master's token is further ahead, the grant is raised.
	maxAhead = 1_000_000
)

// floor returns a proposal.
func (t *tokens) floor(now time.Time) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	clock := now.UnixMicro()
	return max(min(t.seen+1, clock+maxAhead), clock+t.lead)
}

// learn notes the tokens that masters have granted to a request that was sent at sent with floor.
func (t *tokens) learn(sent time.Time, floor int64, v votes) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range v {
		if one == nil || !granted(one) {
			continue
		}
		t.seen = max(t.seen, one.Token+backend.TokensPerGrant-1)
		if one.Token > floor {
			t.lead = min(max(t.lead, one.Token-sent.UnixMicro()+leadStep), maxAhead)
		}
	}
	t.lead -= t.lead / 256 // forgets a clock that was ahead once
}

// raise sets the greatest token of a grant on masters that granted a smaller one. It returns that
// token, or an error if no majority has it then. A master that has lost the grant refuses.
//
// The token is at least the proposal. A master that gets a request again returns the token of the
// first time. That may be before the time for which a restarted master does not vote, and then the
// token of a later grant that this master has forgotten may be greater.
func (b *Backend) raise(ctx context.Context, r *backend.AcquireRequest, v votes) (int64, error) {
	token := max(v.greatest().Token, r.Floor) //planted:quorum-token-of-repeat
	has := func(one *vote) bool { return granted(one) && one.Token == token }
	have := v.count(has)
	b.tokens.granted.Add(1)
	if have >= b.majority { //planted:quorum-raise
		return token, nil
	}
	b.tokens.raised.Add(1)
	up := []backend.RenewRequest{{Key: r.Key, ID: r.ID, Retention: r.Retention, Token: token, Holder: r.Holder}}
	behind := make([]bool, len(v))
	for i, one := range v {
		behind[i] = one != nil && granted(one) && !has(one)
	}
	errs := v.errs()
	askUntil(ctx, b, nil, func(i int) (raised bool, err error) {
		if !behind[i] {
			return false, nil
		}
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), Limit(r.Lease))
		defer cancel()
		reply := b.masters[i].Renew(own, up)[0]
		if reply.Err == nil && reply.Verdict != backend.VerdictKept {
			reply.Err = errGone
		}
		return reply.Err == nil, reply.Err
	}, func(i int, raised bool, err error) bool {
		if err != nil {
			errs[i] = err
		}
		if raised {
			have++
		}
		return have >= b.majority
	})
	if have < b.majority {
		return 0, b.failure(errs)
	}
	return token, nil
}

var errGone = errors.New("it has lost the grant")
