package redis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// sends says what a ClusterClient has done with one call. A ClusterClient sends a command again
// after a missing reply, and returns only the last reply.
type sends struct {
	seen bool // a resendHook has seen the call
	lost bool // a send got no reply, so a duplicate of the command may arrive later
}

type sendsKey struct{}

// Value returns the sends of the call to resendHook. A hook of the user may have derived its ctx
// from l.
func (l *limited) Value(key any) any {
	if key == (sendsKey{}) {
		return &l.sends
	}
	return l.Context.Value(key)
}

// resendHook notes each send without a reply. It is a hook of the clients of the nodes, which the
// ClusterClient calls for each send, in the goroutine of the call.
type resendHook struct {
	retries bool // the client of the node sends a command again too: the user's NewClient has set MaxRetries
}

func (resendHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h resendHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.note(ctx, err)
		return err
	}
}

// ProcessPipelineHook sees a command that follows ASKING.
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
		s.lost = s.lost || h.retries || unanswered(err)
	}
}
