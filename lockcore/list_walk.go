package lockcore

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

var errOtherServer = errors.New("lockcore: another server has taken the place of the one that was listed (a failover or a restart): keys may be missing, list again")

// walk is one SCAN from the first step to the last.
type walk struct {
	l       *Locker
	rdb     redis.UniversalClient
	pattern string
	cursor  uint64 // of the next step; 0 before the first and after the last
	begun   bool
	server  string // run_id of the first step's server; empty if that is not known
}

// next takes a step and asks in the same round trip, on the same connection, which server it is: a cursor means nothing to another one.
func (w *walk) next(ctx context.Context) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pipe := w.rdb.Pipeline()
	scan := pipe.Scan(ctx, w.cursor, w.pattern, scanCount)
	var info *redis.StringCmd
	if !w.begun || w.server != "" {
		info = pipe.Info(ctx, "server")
	}
	if err := w.l.exec(ctx, pipe); err != nil {
		return nil, err
	}
	if names, w.cursor, err = scan.Result(); err != nil {
		return nil, err
	}
	if info == nil {
		return names, nil
	}
	text, err := info.Result()
	if err != nil && w.begun || err != nil && !errors.As(err, new(redis.Error)) {
		return nil, err
	}
	server := fields(text)["run_id"]
	if !w.begun {
		w.begun, w.server = true, server
	}
	if server != w.server {
		return nil, errOtherServer
	}
	return names, nil
}
