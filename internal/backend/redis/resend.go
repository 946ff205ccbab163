package redis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// sends records what a ClusterClient did with one call. A ClusterClient sends a command again after
// a missing reply, and returns only the last reply.
type sends struct {
	seen bool // a resendHook has seen the call
	lost bool // a send got no reply, so a duplicate of the command may arrive later
}

type sendsKey struct{}

// Value gives resendHook the sends of the call. It works through ctx values because a hook of the
// user may have derived a new ctx from l.
func (l *limited) Value(key any) any {
	if key == (sendsKey{}) {
		return &l.sends
	}
	return l.Context.Value(key)
}

// resendHook records each send without a reply. The client of each node has this hook. A
// ClusterClient sends through those clients, in the goroutine of the call.
type resendHook struct {
	retries bool // the node's client may itself send a command again, because the user's NewClient set MaxRetries
}

func (resendHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h resendHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.note(ctx, err)
		return err
	}
}

// ProcessPipelineHook sees the commands that a ClusterClient sends after ASKING.
func (h resendHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		h.note(ctx, err)
		return err
	}
}

func (h resendHook) note(ctx context.Context, err error) {
	if s, ok := ctx.Value(sendsKey{}).(*sends); ok {
		s.seen = true
		s.lost = s.lost || h.retries || mayTakeEffect(err)
	}
}
