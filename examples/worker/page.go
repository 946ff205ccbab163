package main

import (
	"context"
	"errors"
	"net/http"
	"net/netip"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/inspect"
	"github.com/holdfast-go/holdfast/inspect/asynqtasks"
	"github.com/holdfast-go/holdfast/lockcore"
)

// serve serves the page while play runs, and then until ctx ends.
func serve(ctx context.Context, s *stage.Stage, addr string, play func(context.Context, *stage.Stage) error) error {
	node, err := s.Node(lockcore.Options{})
	if err != nil {
		return err
	}
	page := inspect.New(node.Locks, inspect.Options{
		Allow: local,
		Tasks: asynqtasks.Find(asynq.NewInspectorFromRedisClient(s.Redis)),
	})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var failed error
	err = stage.Serve(ctx, addr, page, func(url string) {
		s.Say("who holds which key: %s/", url)
		if failed = play(ctx, s); failed != nil {
			stop()
			return
		}
		s.Say("until Ctrl-C: %s/find?q=report-1", url)
	})
	return errors.Join(failed, err)
}

// local lets everyone on this machine act.
func local(r *http.Request) error {
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !from.Addr().Unmap().IsLoopback() {
		return errors.New("only on the machine of the program")
	}
	return nil
}
