package stage

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"
)

// Serve serves h on addr until ctx ends, and then waits for the requests under way. ready gets the
// URL of the server.
func Serve(ctx context.Context, addr string, h http.Handler, ready func(url string)) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }() // ends with Shutdown or with an error
	ready("http://" + strings.Replace(l.Addr().String(), "[::]", "127.0.0.1", 1))
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return srv.Shutdown(ctx)
}
