package conn

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Sends records how a ClusterClient sent one call. A ClusterClient sends a command again after a
// missing reply, and returns only the last reply.
type Sends struct {
	Seen bool // a resendHook has seen the call
	Lost bool // a send got no reply, so a duplicate of the command may arrive later
}

type sendsKey struct{}

// Value passes the Sends of the call to resendHook. It uses a ctx value because a hook of the user
// may have derived a new ctx from l.
func (l *Limited) Value(key any) any {
	if key == (sendsKey{}) {
		return &l.Sends
	}
	return l.Context.Value(key)
}

// resendHook records each send without a reply. The client of each node has this hook. A
// ClusterClient sends through those clients, on the goroutine of the call.
type resendHook struct {
	retries bool // the client of the node may send a command again, because the user's NewClient set MaxRetries
}

func (resendHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h resendHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.note(ctx, err)
		return err
	}
}

// ProcessPipelineHook handles the commands that a ClusterClient sends after ASKING.
func (h resendHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		h.note(ctx, err)
		return err
	}
}

func (h resendHook) note(ctx context.Context, err error) {
	if s, ok := ctx.Value(sendsKey{}).(*Sends); ok {
		s.Seen = true
		s.Lost = s.Lost || h.retries || MayTakeEffect(err)
	}
}
