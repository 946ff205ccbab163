package redis

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/conn"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

const (
	scanCount = 200 // names that Redis examines per SCAN: about 0.2 ms, for which its other clients wait; fewer cost it more in total
	listBatch = 100 // maximum number of keys that are inspected in one round trip
)

// Server is a primary and its client.
type Server struct {
	Name   string
	Client redis.UniversalClient
}

// Servers returns the primaries of a cluster that the client has found, or the one server. The name
// of a server is empty if its client does not show the address.
func (b *Backend) Servers(ctx context.Context) ([]Server, error) {
	switch c := b.send.Renews.(type) {
	case *redis.ClusterClient:
		var mu sync.Mutex
		var all []Server
		err := c.ForEachMaster(ctx, func(_ context.Context, one *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, Server{one.Options().Addr, one})
			return nil
		})
		if err == nil && len(all) == 0 {
			err = errors.New("the cluster reports no master")
		}
		slices.SortFunc(all, func(a, b Server) int { return strings.Compare(a.Name, b.Name) })
		return all, err
	case *redis.Client:
		name := c.Options().Addr
		if !b.send.Own {
			name = "" // a failover client does not show its server
		}
		return []Server{{name, c}}, nil
	}
	return []Server{{"", b.send.Renews}}, nil
}

// List yields the keys by SCAN, one server after the other. The error of a server comes after the
// keys of all servers.
func (b *Backend) List(ctx context.Context, r backend.ListRequest) iter.Seq2[backend.ListEntry, error] {
	return func(yield func(backend.ListEntry, error) bool) {
		all, err := b.Servers(ctx)
		errs := []error{err}
		for _, s := range all {
			more, err := b.listOn(ctx, s.Client, r, yield)
			if err != nil && len(all) > 1 {
				err = errtext.Prefix(s.Name, err)
			}
			if errs = append(errs, err); err == nil && !more {
				return
			} else if err != nil && backend.Ended(ctx) {
				break
			}
		}
		if err := errtext.Join(errs...); err != nil {
			yield(backend.ListEntry{}, err)
		}
	}
}

// listOn lists one server. more is false if the loop of the caller has ended.
func (b *Backend) listOn(ctx context.Context, rdb redis.UniversalClient, r backend.ListRequest, yield func(backend.ListEntry, error) bool) (more bool, err error) {
	w := walk{b: b, rdb: rdb, pattern: wire.Pattern(b.prefix, r.Kind, r.Match)}
	for {
		names, err := w.next(ctx)
		if err != nil {
			return false, err
		}
		for some := range slices.Chunk(b.keysOf(names), listBatch) {
			entries, err := b.entries(ctx, rdb, some, r)
			if err != nil {
				return false, err
			}
			for _, e := range entries {
				if !yield(e, nil) {
					return false, nil
				}
			}
		}
		if w.cursor == 0 {
			return true, nil
		}
		if r.Pause > 0 && !backend.Sleep(ctx, r.Pause) {
			return false, context.Cause(ctx)
		}
	}
}

// keysOf returns the keys that have these stored names, each once. It skips names of another layout.
func (b *Backend) keysOf(names []string) (keys []*backend.Key) {
	seen := make(map[string]bool, len(names))
	for _, stored := range names {
		kind, name, ok := wire.ParseName(b.prefix, stored)
		if !ok {
			continue
		}
		key := b.Key(kind, name)
		if hash := key.Stored[0]; !seen[hash] {
			seen[hash] = true
			keys = append(keys, &key)
		}
	}
	return keys
}

// entries inspects keys, in one round trip. It skips keys that r does not select, and those that
// cannot be read.
func (b *Backend) entries(ctx context.Context, rdb redis.UniversalClient, keys []*backend.Key, r backend.ListRequest) ([]backend.ListEntry, error) {
	record := backend.NoRecord
	if r.RecordHeads {
		record = backend.RecordHead
	}
	replies, err := b.inspectAll(ctx, rdb, keys, record)
	if err != nil {
		return nil, err
	}
	var entries []backend.ListEntry
	for i, key := range keys {
		reply, ok := replies[i].([]any)
		if !ok {
			continue // only this key cannot be read, or has moved to another server
		}
		e := backend.ListEntry{Kind: key.Kind, Name: key.Name}
		if e.Status, err = wire.DecodeInspect(key.Kind, reply); err != nil || !r.Selects(&e.Status) {
			continue
		}
		entries = append(entries, e)
	}
	return entries, nil
}

var errOtherServer = errors.New("lockcore: another server has replaced the listed one (a failover or a restart): keys may be missing, list again")

// walk is one complete SCAN of a server.
type walk struct {
	b       *Backend
	rdb     redis.UniversalClient
	pattern string
	cursor  uint64 // of the next step; 0 before the first and after the last step
	begun   bool
	server  string // run_id of the server of the first step; empty if it is not known
}

// next performs a step. A cursor is valid only on the server that returned it. So the same round
// trip, on the same connection, also requests the run_id of the server.
func (w *walk) next(ctx context.Context) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, backend.CallTimeout)
	defer cancel()
	pipe := w.rdb.Pipeline()
	scan := pipe.Scan(ctx, w.cursor, w.pattern, scanCount)
	var info *redis.StringCmd
	if !w.begun || w.server != "" {
		info = pipe.Info(ctx, "server")
	}
	if err := w.b.exec(ctx, pipe); err != nil {
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

// inspectAll runs inspect.lua for many keys in one round trip. The reply for a key that cannot be
// read, or that is moving to another server, is nil.
func (b *Backend) inspectAll(ctx context.Context, rdb redis.UniversalClient, keys []*backend.Key, record backend.RecordPart) ([]any, error) {
	replies := make([]any, len(keys))
	head := wire.Inspect.SHA
	for range 2 {
		commands := make([]wire.Command, len(keys))
		for i, key := range keys {
			commands[i] = b.wire.Inspect(key, record)
			commands[i].Use(head)
		}
		cmds, err := b.pipe(ctx, rdb, commands)
		if err != nil {
			return nil, err
		}
		forgotten := false
		for i, cmd := range cmds {
			v, err := cmd.Result()
			switch {
			case err == nil:
				replies[i] = v
			case redis.HasErrorPrefix(err, "NOSCRIPT"):
				forgotten = true
			case !moving(err) && !errors.As(conn.Unreadable(err, commands[i]), new(*backend.DataError)):
				return nil, err
			}
		}
		if !forgotten {
			break
		}
		head = wire.Inspect.Full
	}
	return replies, nil
}

// moving reports whether the error shows that a key has moved or is moving to another primary.
func moving(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "TRYAGAIN")
}

func (b *Backend) pipe(ctx context.Context, rdb redis.UniversalClient, commands []wire.Command) ([]*redis.Cmd, error) {
	if len(commands) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, backend.CallTimeout)
	defer cancel()
	cmds := make([]*redis.Cmd, 0, len(commands))
	pipe := rdb.Pipeline()
	for _, c := range commands {
		cmds = append(cmds, pipe.Do(ctx, c.List...))
	}
	return cmds, b.exec(ctx, pipe)
}

// exec sends a pipeline. After an error its commands must not be read, because some were not sent,
// or are still in flight. An error reply to a command is not an error of exec.
func (b *Backend) exec(ctx context.Context, pipe redis.Pipeliner) error {
	type sent struct {
		cmds []redis.Cmder
		err  error
	}
	v, err := b.send.Bounded(ctx, func() (any, error) {
		cmds, err := pipe.Exec(ctx)
		return sent{cmds, err}, nil
	})
	if err != nil {
		return err
	}
	s, _ := v.(sent)
	failed := func(cmd redis.Cmder) bool { return cmd.Err() != nil }
	if errors.As(s.err, new(redis.Error)) && slices.ContainsFunc(s.cmds, failed) {
		return nil
	}
	return s.err // includes a failed login, whose error go-redis does not set in the commands
}

// fields parses the lines name:value of a text.
func fields(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}
