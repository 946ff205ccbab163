package doctor

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

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	callTimeout  = backend.CallTimeout
	checkTimeout = 30 * time.Second // of a whole Check
	checkAtOnce  = 4                // primaries of a Cluster that are examined at the same time
)

// Severity is how much a Finding matters.
type Severity string

// The severities, worst first.
const (
	SeverityProblem Severity = "problem" // a guarantee does not hold, or something does not work
	SeverityWarning Severity = "warning" // a guarantee ends with an expected event: a restart, a failover, a full memory
	SeverityNote    Severity = "note"    // information; no action is needed
)

// Code names a kind of Finding, such as "eviction" or "rights". It stays the same over releases.
// docs/operate.md lists them.
type Code string

// The codes of the findings.
const (
	codeServer         Code = "server"          // version, round trip and clock of a server that was examined
	codeUnreachable    Code = "unreachable"     // a primary of a Cluster, or a server of a majority, does not reply
	codeBusy           Code = "busy"            // a script of another program blocks the server, or the server loads its data
	codeNotSeen        Code = "not-seen"        // the user may not read some facts
	codeVersion        Code = "version"         // older than 6.2
	codeLua            Code = "lua-cve"         // the version number is older than the fixes of Lua's vulnerabilities
	codeEviction       Code = "eviction"        // a maxmemory-policy that evicts keys
	codeMemory         Code = "memory"          // maxmemory is almost reached
	codePersistence    Code = "persistence"     // a crash or a restart loses data
	codeDisk           Code = "disk"            // the last write to disk failed
	codeReplica        Code = "replica"         // not a primary
	codeFailover       Code = "failover"        // replication is asynchronous
	codeMinReplicas    Code = "min-replicas"    // an isolated primary continues to grant, or there are too few replicas
	codeReplicaAcks    Code = "replica-acks"    // fewer replicas than Options.ReplicaAcks exist, or acknowledge in time
	codeSentinel       Code = "sentinel"        // Sentinels watch the server, but the client does not use them
	codeClusterClient  Code = "cluster-client"  // a node of a Cluster, and a client for one server
	codeClusterSlots   Code = "cluster-slots"   // a client whose copies would not follow a failover, so New returns an error
	codeClusterState   Code = "cluster-state"   // the Cluster does not serve all slots
	codeSharedClient   Code = "shared-client"   // a client that a Locker cannot copy
	codeQuorum         Code = "quorum"          // not 3, 5 or 7 different servers for NewQuorum
	codeRestart        Code = "restart"         // a restarted server of a majority whose grants do not count yet
	codeClockSpread    Code = "clock-spread"    // the clocks of the servers of a majority differ
	codeClock          Code = "clock"           // the clocks of server and process differ
	codeClockDrift     Code = "clock-drift"     // the server's clock jumps or runs at another rate
	codeLatency        Code = "latency"         // replies are slow for this lease
	codeSlowCommands   Code = "slow-commands"   // a command has blocked the server
	codeRights         Code = "rights"          // commands, keys or channels that the user may not use
	codeChannel        Code = "channel"         // notifications do not arrive
	codeTrial          Code = "trial"           // a throw-away key could not be acquired and released
	codeIdleTimeout    Code = "idle-timeout"    // the server closes idle connections
	codeKeepalive      Code = "tcp-keepalive"   // connections of dead machines stay
	codePubSubBuffer   Code = "pubsub-buffer"   // a small buffer ends subscriptions
	codeReplyThreshold Code = "reply-threshold" // how soon a blocked server replies BUSY
)

// Finding is one result of Check.
type Finding struct {
	Code        Code     `json:"code"`
	Severity    Severity `json:"severity"`
	Node        string   `json:"node,omitempty"` // address of the server; empty if it is not about one
	Seen        string   `json:"seen"`           // the fact
	Consequence string   `json:"consequence"`    // for holds and records
	Remedy      string   `json:"remedy"`
}

// String returns the finding in one line.
func (f Finding) String() string {
	at := ""
	if f.Node != "" {
		at = " " + f.Node
	}
	return fmt.Sprintf("%s %s%s: %s. %s %s", f.Severity, f.Code, at, f.Seen, f.Consequence, f.Remedy)
}

// Check examines the servers of rdb: eviction, persistence, replicas, version, clocks and latency
// relative to the lease. It also checks whether the client's user has all rights that the scripts
// need. Pass the arguments of lockcore.New. Of o only Prefix, Terms.Lease and ReplicaAcks matter.
//
// Check is for a program's start, a health page or a shell (holdfast doctor). It examines every
// primary of a Cluster. It takes about a second on a server nearby, and at most 35 s.
//
// Check tries rights on throw-away keys under the prefix, with names of 26 random characters, and
// deletes them:
//
//   - If ctx ends meanwhile, a key may stay for up to a minute.
//   - If the process dies or Redis becomes unavailable during the trial, a key stays for about a
//     day. No key stays without a TTL.
//   - Facts that the user may not read are a finding (codeNotSeen). If an ACL refuses INFO,
//     CONFIG, SLOWLOG, PUBSUB or CLUSTER, its log gets an entry for each.
//
// The findings are sorted, worst first. They are true at this moment. An empty result proves
// nothing about later times. A client that lockcore.New refuses because of its slots is a finding
// (codeClusterSlots). Otherwise Check returns the error of lockcore.New, or the cause of ctx, or an
// error that satisfies ErrUnavailable if no server could be examined.
func Check(ctx context.Context, rdb goredis.UniversalClient, o lockcore.Options) ([]Finding, error) {
	e, err := newExamination(rdb, o)
	if errors.Is(err, redis.ErrClusterSlots) {
		return []Finding{{
			codeClusterSlots, SeverityProblem, "", "the ClusterClient gets its slots from a function, as one of redis.NewFailoverClusterClient does",
			"lockcore.New refuses it. The Locker's own clients would stay on the old primary for up to a minute after a failover, and acquire keys there beside the new one.",
			"With Sentinel use redis.NewFailoverClient (in redis.UniversalOptions: MasterName without RouteByLatency, RouteRandomly and IsClusterMode). In a Cluster whose addresses must be changed use ClusterOptions.Dialer.",
		}}, nil
	}
	if err != nil {
		return nil, err
	}
	defer e.close(ctx)
	bound, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	findings, err := e.run(bound)
	if end := endOf(ctx); end != nil {
		return nil, end
	}
	return findings, err
}

// examination is one Check.
type examination struct {
	l     *lockcore.Locker // acquires and releases throw-away keys
	b     *redis.Backend   // sends everything else
	lease time.Duration    // Terms.Lease of l
	acks  int              // replicas that l waits for
	voter bool             // the server is one of a majority
}

func newExamination(rdb goredis.UniversalClient, o lockcore.Options) (*examination, error) {
	o.Observer = nil // the trial is not part of the program's telemetry
	l, err := lockcore.New(rdb, o)
	if err != nil {
		return nil, err
	}
	e := &examination{l: l, lease: l.Terms().Lease, acks: o.ReplicaAcks.N}
	closing := make(chan struct{}) // never closed: e.b acquires nothing
	e.b, err = redis.New(rdb, redis.Options{
		Options: backend.Options{Locker: rand.Text(), Closing: closing, CleanupsFailed: func(int, error) {}}, Prefix: o.Prefix, NoGroups: true,
	})
	if err != nil {
		e.closeLocker(context.Background())
		return nil, err
	}
	return e, nil
}

func (e *examination) close(ctx context.Context) {
	e.closeLocker(ctx)
	e.b.Close()
}

// closeLocker ends the background work of the trials. A second call does nothing.
func (e *examination) closeLocker(ctx context.Context) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	_ = e.l.Close(end) // a failed trial is a finding already
}

func (e *examination) run(ctx context.Context) ([]Finding, error) {
	nodes, err := e.nodes(ctx)
	if err != nil {
		return nil, errtext.Wrap(lockcore.ErrUnavailable, err)
	}
	defer e.sweep(context.WithoutCancel(ctx), nodes)
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
		return nil, errtext.Wrap(lockcore.ErrUnavailable, errtext.Join(errs...))
	}
	return worstFirst(append(findings, e.checkClient(ctx, nodes)...)), nil
}

func worstFirst(findings []Finding) []Finding {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank(a.Severity), rank(b.Severity)), strings.Compare(a.Node, b.Node))
	})
	return findings
}

func rank(s Severity) int {
	return slices.Index([]Severity{SeverityProblem, SeverityWarning, SeverityNote}, s)
}

// endOf returns the cause of ctx, or nil if ctx has not ended. The deadline of a connection may
// fire a moment before the timer of ctx, which sets the cause.
func endOf(ctx context.Context) error {
	if !backend.Ended(ctx) {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(10 * time.Millisecond):
		return context.DeadlineExceeded
	}
}

// nodes returns all primaries of a Cluster, or the one server.
func (e *examination) nodes(ctx context.Context) ([]*node, error) {
	servers, err := e.b.Servers(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make([]*node, 0, len(servers))
	for _, s := range servers {
		nodes = append(nodes, &node{examination: e, name: s.Name, rdb: s.Client})
	}
	if e.b.Single() || !e.b.Own() {
		nodes[0].key = rand.Text()
		return nodes, nil
	}
	// Each primary gets a key of its slots, so that the trial reaches it. A primary without slots
	// gets none.
	for missing, tries := len(nodes), 200*len(nodes); missing > 0 && tries > 0; tries-- {
		key := e.b.Key(backend.KindExclusive, rand.Text())
		addr := e.b.Route(ctx, []*backend.Key{&key})[0]
		for _, n := range nodes {
			if n.key == "" && n.name == addr {
				n.key, missing = key.Name, missing-1
			}
		}
	}
	return nodes, nil
}
