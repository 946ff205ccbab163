package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/conn"
)

// greet returns the function that asks the server of a new connection what it is, or nil. A restart
// ends all connections to a server. So Connected has learned of it before the first reply of the
// restarted server.
func (o *Options) greet() func(context.Context, *redis.Conn) error {
	if o.Connected == nil {
		return nil
	}
	return func(ctx context.Context, cn *redis.Conn) error {
		info, err := serverInfo(ctx, cn, o.MinAge)
		if err == nil {
			err = o.Connected(info)
		}
		if err != nil {
			return &conn.NotSentError{Cause: err}
		}
		return nil
	}
}

func serverInfo(ctx context.Context, cn *redis.Conn, minAge time.Duration) (backend.ServerInfo, error) {
	var info backend.ServerInfo
	fields, err := infoFields(ctx, cn, "server", "replication")
	if err != nil {
		return info, err
	}
	up, err := strconv.ParseInt(fields["uptime_in_seconds"], 10, 32)
	if info.RunID = fields["run_id"]; info.RunID == "" || err != nil {
		return info, fmt.Errorf("INFO has run_id %q and uptime_in_seconds %q, must have both", info.RunID, fields["uptime_in_seconds"])
	}
	info.Age = time.Duration(max(up-1, 0)) * time.Second // the server counts whole seconds of its clock
	switch {
	case fields["redis_mode"] == "cluster" || fields["server_mode"] == "cluster":
		info.Refused = "is part of a Cluster"
	case fields["redis_mode"] == "sentinel" || fields["server_mode"] == "sentinel":
		info.Refused = "is a Sentinel"
	case fields["role"] != "master":
		info.Refused = "is a replica"
	}
	if info.Age < minAge {
		set, err := cn.ConfigGet(ctx, "*append*").Result() // not every user may, and not every provider has it
		if info.Durable = err == nil && set["appendonly"] == "yes" && set["appendfsync"] == "always" && set["no-appendfsync-on-rewrite"] != "yes"; info.Durable {
			fields, err = infoFields(ctx, cn, "persistence", "commandstats") // after CONFIG GET
			info.Durable = err == nil && !Reconfigured(fields)
		}
	}
	return info, nil
}

// Reconfigured reports whether the persistence of a server may have been set after its start. Then the
// settings do not say what the start has lost. info has the sections persistence and commandstats.
// Setting appendonly writes a new file, as BGREWRITEAOF does. Before Redis 7 a change of appendfsync
// alone leaves no trace.
func Reconfigured(info map[string]string) bool {
	_, set := info["cmdstat_config|set"]
	return set || info["aof_last_rewrite_time_sec"] != "-1" || info["aof_rewrite_in_progress"] != "0" || info["aof_rewrite_scheduled"] != "0"
}

func infoFields(ctx context.Context, cn *redis.Conn, sections ...string) (map[string]string, error) {
	cmds, err := cn.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, section := range sections { // Redis 6 takes one
			p.Info(ctx, section)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("INFO: %w", err)
	}
	fields := map[string]string{}
	for _, cmd := range cmds {
		text, _ := cmd.(*redis.StringCmd)
		for line := range strings.Lines(text.Val()) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				fields[name] = value
			}
		}
	}
	return fields, nil
}
