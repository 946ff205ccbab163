// Package grpc shows guard.Exclusive in a server of gRPC.
package grpc

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Alone runs one call at a time for each account: grpc.NewServer(grpc.UnaryInterceptor(Alone(locks))).
// Calls whose request names no account run unguarded.
func Alone(locks *lockcore.Locker) grpc.UnaryServerInterceptor {
	terms := lockcore.Terms{Name: "account", MaxWaiting: 64}
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
		r, ok := req.(interface{ GetAccountId() string })
		if !ok {
			return handler(ctx, req)
		}
		ran := false
		err = guard.Exclusive(ctx, locks, "account:"+r.GetAccountId(), terms, func(ctx context.Context) (err error) {
			ran = true
			reply, err = handler(ctx, req)
			return err
		})
		switch {
		case err == nil || ran:
			return reply, err
		case errors.Is(err, lockcore.ErrBusy):
			return nil, status.Error(codes.Aborted, "another call holds this account")
		default:
			return nil, status.Error(codes.Unavailable, "try again")
		}
	}
}
