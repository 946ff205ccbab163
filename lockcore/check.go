package lockcore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/errtext"
)

const (
	checkTimeout = 30 * time.Second // of a whole Check
	checkAtOnce  = 4                // masters of a Cluster that are asked at the same time
)

// Severity says how much a Finding matters.
type Severity string

// The severities, worst first.
const (
	SeverityProblem Severity = "problem" // a guarantee does not hold, or something does not work
	SeverityWarning Severity = "warning" // a guarantee ends with what has to be expected one day: a restart, a failover, a full memory
	SeverityNote    Severity = "note"    // good to know; nothing has to be done
)

// Code names a kind of Finding. It stays the same over releases; docs/doctor.md describes each.
type Code string

// What Check can find.
const (
	CodeServer         Code = "server"          // which server that is, how far away, and its clock
	CodeUnreachable    Code = "unreachable"     // a primary of a Cluster does not answer
	CodeBusy           Code = "busy"            // somebody's script blocks the server, or it loads its data
	CodeNotSeen        Code = "not-seen"        // facts that this user may not ask for
	CodeVersion        Code = "version"         // older than 6.2
	CodeLua            Code = "lua-cve"         // by its number without the fixes of Lua's vulnerabilities
	CodeEviction       Code = "eviction"        // a maxmemory-policy that evicts keys
	CodeMemory         Code = "memory"          // maxmemory is all but reached
	CodePersistence    Code = "persistence"     // what a crash or a restart forgets
	CodeDisk           Code = "disk"            // the last write to disk failed
	CodeReplica        Code = "replica"         // not a primary
	CodeFailover       Code = "failover"        // replication is asynchronous
	CodeMinReplicas    Code = "min-replicas"    // an isolated primary goes on granting, or too few replicas are there
	CodeReplicaAcks    Code = "replica-acks"    // fewer replicas than Options.ReplicaAcks waits for are there, or acknowledge in time
	CodeSentinel       Code = "sentinel"        // Sentinels watch the server, and the client does not ask them
	CodeClusterClient  Code = "cluster-client"  // a node of a Cluster, asked by a client for one server
	CodeClusterState   Code = "cluster-state"   // the Cluster does not serve all slots
	CodeSharedClient   Code = "shared-client"   // a client that a Locker cannot copy
	CodeClock          Code = "clock"           // the clocks of server and process are apart
	CodeClockDrift     Code = "clock-drift"     // the server's clock jumps or runs at another rate
	CodeLatency        Code = "latency"         // answers are slow for this lease
	CodeSlowCommands   Code = "slow-commands"   // a command has blocked the server
	CodeRights         Code = "rights"          // commands, keys or channels that the user may not use
	CodeChannel        Code = "channel"         // wake-ups do not arrive
	CodeTrial          Code = "trial"           // a throw-away key could not be acquired and released
	CodeIdleTimeout    Code = "idle-timeout"    // the server closes idle connections
	CodeKeepalive      Code = "tcp-keepalive"   // connections of dead machines stay
	CodePubSubBuffer   Code = "pubsub-buffer"   // a small buffer cuts subscriptions off
	CodeReplyThreshold Code = "reply-threshold" // when a blocked server says so
)

// Finding is one thing that Check has to say.
type Finding struct {
	Code        Code     `json:"code"`
	Severity    Severity `json:"severity"`
	Node        string   `json:"node,omitempty"` // address of the server; empty if it is not about one
	Seen        string   `json:"seen"`           // the fact
	Consequence string   `json:"consequence"`    // what it means for holds and records
	Remedy      string   `json:"remedy"`
}

// String is the finding in one line.
func (f Finding) String() string {
	at := ""
	if f.Node != "" {
		at = " " + f.Node
	}
	return fmt.Sprintf("%s %s%s: %s. %s %s", f.Severity, f.Code, at, f.Seen, f.Consequence, f.Remedy)
}

// Check looks at Redis as a doctor does: eviction, persistence, replicas, version, clocks, latency against the lease, and
// whether the client's user may do all that the scripts need. Give it what New gets; only Prefix, Terms.Lease and ReplicaAcks matter. It
// is for a program's start, a health page or a shell (cmd/holdfast doctor), takes about a second on a server nearby and at most 35 s,
// and asks every primary of a Cluster.
//
// Rights are tried out, not looked up: on throw-away keys under the prefix, with names of 26 random characters, which it deletes, also when
// ctx ends meanwhile; then one may stay for up to a minute. If the process dies or Redis goes away while it tries to acquire, a key stays
// for about a day; nothing stays without a TTL. Facts that the user may not ask for are a finding too (CodeNotSeen); where an ACL
// refuses INFO, CONFIG, SLOWLOG, PUBSUB or CLUSTER, its log gets an entry for each. What is asked is as
// of this moment: no finding is no proof.
//
// The findings come worst first. The error is that of New for what New would refuse; or it satisfies ErrUnavailable, and nothing
// could be checked; or it is the cause of ctx.
func Check(ctx context.Context, rdb redis.UniversalClient, o Options) ([]Finding, error) {
	o.Observer = nil // the trial is nobody's business
	l, err := New(rdb, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		_ = l.Close(end)
	}()
	bound, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	findings, err := checkAll(bound, l, o.ReplicaAcks.N)
	if end := endOf(ctx); end != nil {
		return nil, end
	}
	return findings, err
}

func checkAll(ctx context.Context, l *Locker, acks int) ([]Finding, error) {
	nodes, err := l.nodes(ctx, acks)
	if err != nil {
		return nil, unavailable(err)
	}
	defer l.sweep(context.WithoutCancel(ctx), nodes)
	var wg sync.WaitGroup
	free := make(chan struct{}, checkAtOnce)
	for _, n := range nodes {
		wg.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			n.examine(ctx)
		})
	}
	wg.Wait()
	var findings []Finding
	var errs []error
	for _, n := range nodes {
		findings = append(findings, n.findings...)
		if n.err != nil {
			err := n.err
			if n.name != "" {
				err = fmt.Errorf("%s: %w", n.name, err)
			}
			errs = append(errs, err)
		}
	}
	if len(errs) == len(nodes) {
		return nil, unavailable(errtext.Join(errs...))
	}
	findings = append(findings, l.checkClient(ctx, nodes)...)
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank(a.Severity), rank(b.Severity)), strings.Compare(a.Node, b.Node))
	})
	return findings, nil
}

func rank(s Severity) int {
	return slices.Index([]Severity{SeverityProblem, SeverityWarning, SeverityNote}, s)
}

// nodes are all masters of a Cluster, or the one server that there is.
func (l *Locker) nodes(ctx context.Context, acks int) ([]*node, error) {
	servers, err := l.masters(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make([]*node, 0, len(servers))
	for _, s := range servers {
		nodes = append(nodes, &node{l: l, name: s.name, rdb: s.rdb, acks: acks})
	}
	cluster, ok := l.conn.renews.(*redis.ClusterClient)
	if !ok {
		nodes[0].key = rand.Text()
		return nodes, nil
	}
	// A key for each master, so that it is that one which is tried. One that has no slots gets none.
	for missing, tries := len(nodes), 200*len(nodes); missing > 0 && tries > 0; tries-- {
		key := rand.Text()
		c, err := cluster.MasterForKey(ctx, redisKeys(l.prefix, KindExclusive, key)[0])
		if err != nil {
			return nil, err
		}
		for _, n := range nodes {
			if n.key == "" && n.name == c.Options().Addr {
				n.key, missing = key, missing-1
			}
		}
	}
	return nodes, nil
}

// server is a master and a client of it.
type server struct {
	name string
	rdb  redis.UniversalClient
}

// masters are those that the client knows.
func (l *Locker) masters(ctx context.Context) ([]server, error) {
	switch c := l.conn.renews.(type) {
	case *redis.ClusterClient:
		var mu sync.Mutex
		var all []server
		err := c.ForEachMaster(ctx, func(_ context.Context, one *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, server{one.Options().Addr, one})
			return nil
		})
		if err == nil && len(all) == 0 {
			err = errors.New("the cluster names no master")
		}
		slices.SortFunc(all, func(a, b server) int { return strings.Compare(a.name, b.name) })
		return all, err
	case *redis.Client:
		name := c.Options().Addr
		if !l.conn.own {
			name = "" // a failover client does not say which it is
		}
		return []server{{name, c}}, nil
	}
	return []server{{"", l.conn.renews}}, nil
}
