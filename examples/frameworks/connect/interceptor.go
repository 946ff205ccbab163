// Package connect shows guard.Exclusive in a server of Connect.
package connect

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Alone runs one call at a time for each account: connect.WithInterceptors(Alone(locks)). Calls
// whose request names no account run unguarded.
func Alone(locks *lockcore.Locker) connect.UnaryInterceptorFunc {
	terms := lockcore.Terms{Name: "account", MaxWaiting: 64}
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (reply connect.AnyResponse, err error) {
			r, ok := req.Any().(interface{ GetAccountId() string })
			if !ok {
				return next(ctx, req)
			}
			ran := false
			err = guard.Exclusive(ctx, locks, "account:"+r.GetAccountId(), terms, func(ctx context.Context) (err error) {
				ran = true
				reply, err = next(ctx, req)
				return err
			})
			switch {
			case err == nil || ran:
				return reply, err
			case errors.Is(err, lockcore.ErrBusy):
				return nil, connect.NewError(connect.CodeAborted, errors.New("another call holds this account"))
			default:
				return nil, connect.NewError(connect.CodeUnavailable, errors.New("try again"))
			}
		}
	}
}
