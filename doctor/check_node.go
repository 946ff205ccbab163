package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// node is a server under examination.
type node struct {
	*examination

	name string // address; empty if the client does not show it
	rdb  goredis.UniversalClient
	key  string // a throw-away key that this server stores; empty if it can store none

	info     map[string]string // of INFO; empty if INFO is refused
	config   map[string]string // of CONFIG GET
	samples  []clock.Sample
	unseen   []string      // commands that were refused
	votesIn  time.Duration // until the grants of a server of a majority count
	tried    bool          // keys were acquired
	findings []Finding
	err      error // the server does not reply, or refuses the user
}

func (n *node) say(code Code, s Severity, seen, consequence, remedy string) {
	n.findings = append(n.findings, Finding{code, s, n.name, seen, consequence, remedy})
}

// examine adds the findings of one server.
func (n *node) examine(ctx context.Context) {
	if err := n.measure(ctx); err != nil {
		n.blocked(err)
		return
	}
	n.readInfo(ctx)
	if n.mode() == "sentinel" {
		remedy := "Make the client with redis.NewFailoverClient and the name of the master."
		if n.voter {
			remedy = independent
		}
		n.say(codeSentinel, SeverityProblem, "this is a Sentinel, which keeps no keys", "Nothing can be acquired here.", remedy)
		return
	}
	n.readConfig(ctx)
	n.checkServer()
	n.checkVersion()
	n.checkMemory()
	n.checkDisk()
	if n.voter {
		n.checkVoter(ctx)
	} else {
		n.checkPersistence()
		n.checkReplication(ctx)
		n.checkCluster(ctx)
	}
	n.checkClock()
	n.checkLatency()
	n.checkSlow(ctx)
	n.checkConnections()
	n.tryOut(ctx)
	if len(n.unseen) > 0 {
		n.say(codeNotSeen, SeverityNote, "refused or failed: "+strings.Join(n.unseen, "; "),
			"The facts that these commands return are not checked. That alone is not a problem.",
			"Run the doctor as a user with these rights, or check the facts with the operator of the server.")
	}
}

// blocked reports a server that returned an error to the first command.
func (n *node) blocked(err error) {
	switch {
	case n.voter: // CheckQuorum reports it
		n.err = err
	case goredis.HasErrorPrefix(err, "BUSY") && !noMaster(err):
		n.say(codeBusy, SeverityProblem, "it replies "+strconv.Quote(err.Error()),
			"While that script runs nothing is acquired, renewed or released, and leases end.",
			"Find the program that sent the script. SCRIPT KILL ends a script that has not written yet.")
	case goredis.HasErrorPrefix(err, "LOADING") && !noMaster(err):
		n.say(codeBusy, SeverityProblem, "it is loading its data",
			"Until that is over nothing is acquired, renewed or released, and leases end.", "Wait, and check again.")
	default:
		n.err = err
		n.say(codeUnreachable, SeverityProblem, "it does not reply: "+err.Error(),
			"The keys of its slots can be neither acquired nor renewed.", "Look at this node, the network to it and the rights of the user there.")
	}
}

// noMaster reports whether no Sentinel has named the primary to a failover client. The error then
// contains the reply of a Sentinel, not of the server. go-redis has no value for it.
func noMaster(err error) bool {
	return strings.Contains(err.Error(), "all sentinels specified in configuration are unreachable")
}

// ask sends a command, and waits for as long as a Locker does.
func (n *node) ask(ctx context.Context, args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return n.b.Bounded(ctx, func() (any, error) { return n.rdb.Do(ctx, args...).Result() })
}

// look sends a command, as ask does, for a fact called what. It records a command that failed.
func (n *node) look(ctx context.Context, what string, args ...any) (any, bool) {
	v, err := n.ask(ctx, args...)
	if err != nil {
		n.unseen = append(n.unseen, fmt.Sprintf("%s (%s)", what, strings.TrimSpace(err.Error())))
	}
	return v, err == nil
}

func (n *node) readInfo(ctx context.Context) {
	v, _ := n.look(ctx, "INFO", "INFO")
	n.info = fields(v)
}

// fields reads the lines name:value of a text.
func fields(v any) map[string]string {
	text, _ := v.(string)
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}

// readConfig sends one command for each name: a pattern would return passwords too, and Redis 6
// takes one name only.
func (n *node) readConfig(ctx context.Context) {
	n.config = map[string]string{}
	names := []string{
		"maxmemory", "maxmemory-policy", "save", "appendonly", "appendfsync", "no-appendfsync-on-rewrite", "min-replicas-to-write", "min-replicas-max-lag", "timeout",
		"tcp-keepalive", "client-output-buffer-limit", "lua-time-limit",
	}
	for _, name := range names {
		v, err := n.ask(ctx, "CONFIG", "GET", name)
		if err != nil {
			n.unseen = append(n.unseen, fmt.Sprintf("CONFIG GET (%s)", strings.TrimSpace(err.Error())))
			return
		}
		switch v := v.(type) {
		case map[any]any:
			for name, value := range v {
				n.config[fmt.Sprint(name)] = fmt.Sprint(value)
			}
		case []any:
			for pair := range slices.Chunk(v, 2) {
				if len(pair) == 2 {
					n.config[fmt.Sprint(pair[0])] = fmt.Sprint(pair[1])
				}
			}
		}
	}
}

// fact returns a value of INFO or, without one, of CONFIG. ok is false if neither has it.
func (n *node) fact(info, config string) (value string, ok bool) {
	if value, ok = n.info[info]; !ok {
		value, ok = n.config[config]
	}
	return value, ok
}

// count returns a number of facts, or -1 if there is none.
func count(facts map[string]string, name string) int64 {
	i, err := strconv.ParseInt(facts[name], 10, 64)
	if err != nil {
		return -1
	}
	return i
}

// found reports whether n has a problem with one of the codes.
func (n *node) found(codes ...Code) bool {
	return slices.ContainsFunc(n.findings, func(f Finding) bool {
		return f.Severity == SeverityProblem && slices.Contains(codes, f.Code)
	})
}
