package doctor

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend/redis"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	independent = "Use 3, 5 or 7 independent primaries, without Sentinel and Cluster."

	spreadRaised = 10 * time.Second // with a greater spread of the clocks, each grant needs two rounds
	spreadTokens = time.Minute      // a free key remembers its tokens for that long
)

// CheckQuorum examines the servers of [lockcore.NewQuorum]: each one as [Check] does, and what only a
// majority needs. Pass the arguments of NewQuorum. Of o only Prefix and Terms.Lease matter.
//
// A server that does not reply, or has restarted and does not vote yet, is a problem only if no
// majority of the others can vote. A number of servers that NewQuorum refuses, a replica, a Sentinel,
// a node of a Cluster, and a server that is there twice are problems.
//
// CheckQuorum examines all servers at the same time, within 35 s. It tries rights on throw-away keys,
// as Check does. It returns an error if a client is nil or a failover client, if o is not valid or
// has ReplicaAcks, the cause of ctx, or an error that satisfies ErrUnavailable if no server could be
// examined.
func CheckQuorum(ctx context.Context, masters []*goredis.Client, o lockcore.Options) ([]Finding, error) {
	if len(masters) == 0 {
		return nil, fmt.Errorf("doctor: CheckQuorum: there are no masters")
	}
	if o.ReplicaAcks.N != 0 {
		return nil, fmt.Errorf("doctor: CheckQuorum: Options.ReplicaAcks.N is %d, must be 0: servers that vote have no replicas", o.ReplicaAcks.N)
	}
	bound, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	nodes := make([]*node, len(masters))
	for i, rdb := range masters {
		if rdb == nil {
			return nil, fmt.Errorf("doctor: CheckQuorum: masters[%d] is nil", i)
		}
		e, err := newExamination(rdb, o)
		if err != nil {
			return nil, err
		}
		defer e.close(ctx)
		if !e.b.Own() {
			return nil, fmt.Errorf("doctor: CheckQuorum: masters[%d] is a failover client (Sentinel), must be a client of one server", i)
		}
		e.voter = true
		servers, err := e.nodes(bound)
		if err != nil {
			return nil, err
		}
		nodes[i] = servers[0]
	}
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() { n.examineVoter(bound) })
	}
	wg.Wait()
	if end := endOf(ctx); end != nil {
		return nil, end
	}
	return together(nodes)
}

// examineVoter examines a server of a majority.
func (n *node) examineVoter(ctx context.Context) {
	alone := []*node{n}
	defer n.sweep(context.WithoutCancel(ctx), alone)
	n.examine(ctx)
	for _, f := range n.checkChannel(ctx, alone) {
		f.Node = n.name
		n.findings = append(n.findings, f)
	}
}

// together returns the findings of all servers, and those about all of them.
func together(nodes []*node) ([]Finding, error) {
	var errs []error
	voters := 0
	for i, n := range nodes {
		if n.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", n.name, n.err))
		}
		for _, other := range nodes[:i] {
			if id := n.info["run_id"]; id != "" && id == other.info["run_id"] {
				n.say(codeQuorum, SeverityProblem, "it is the same server as "+other.name+", by its run_id",
					"lockcore.NewQuorum returns an error: one failure would take two votes.", independent)
				break
			}
		}
		if n.votes() {
			voters++
		}
	}
	if len(errs) == len(nodes) {
		return nil, errtext.Wrap(lockcore.ErrUnavailable, errtext.Join(errs...))
	}
	majority := len(nodes)/2 + 1
	var findings []Finding
	for _, n := range nodes {
		n.reportMute(voters, majority)
		findings = append(findings, n.findings...)
	}
	if len(nodes) != 3 && len(nodes) != 5 && len(nodes) != 7 {
		findings = append(findings, Finding{
			codeQuorum, SeverityProblem, "", fmt.Sprintf("there are %d servers", len(nodes)),
			"lockcore.NewQuorum returns an error. An even number of servers survives no more failures than one server less.", independent,
		})
	}
	return worstFirst(append(findings, checkSpread(nodes)...)), nil
}

// votes reports whether the grants of a server count now.
func (n *node) votes() bool {
	return n.err == nil && n.votesIn <= 0 && !n.found(codeQuorum, codeReplica, codeSentinel, codeClusterClient, codeRights, codeTrial, codeMemory, codeDisk)
}

// checkVoter examines what only a server of a majority needs.
func (n *node) checkVoter(ctx context.Context) {
	switch {
	case n.info["role"] == "slave":
		n.say(codeReplica, SeverityProblem, "it is a replica", "It never votes, and lockcore.NewQuorum returns an error.", independent)
		return
	case n.info["cluster_enabled"] == "1":
		n.say(codeClusterClient, SeverityProblem, "it is a node of a Cluster", "It never votes, and lockcore.NewQuorum returns an error.", independent)
		return
	}
	if replicas := count(n.info, "connected_slaves"); replicas > 0 {
		n.say(codeFailover, SeverityNote, fmt.Sprintf("%d connected replicas", replicas),
			"A replica that becomes the primary at this address lacks the last leases, and holdfast does not see that. A restart of this server is safe.",
			"Do not replace this server by a replica.")
	}
	if subscribers := n.sentinels(ctx); subscribers > 0 {
		n.say(codeSentinel, SeverityWarning, fmt.Sprintf("Sentinels watch this server (%d subscribers)", subscribers),
			"A failover and one back make it a primary that lacks the last leases, and holdfast does not see that: with another such server, two holders run.",
			"Let no Sentinel watch the servers of a majority.")
	}
	n.checkRestart(ctx)
}

// checkRestart examines whether the server votes, and what it loses in a restart. As a Locker does,
// it uses the settings of CONFIG GET, and waits for 1 % more than the lease.
func (n *node) checkRestart(ctx context.Context) {
	up := count(n.info, "uptime_in_seconds")
	if n.info["run_id"] == "" || up < 0 {
		n.say(codeRights, SeverityProblem, strings.Join(append([]string{"INFO shows no run_id and uptime_in_seconds"}, n.unseen...), "; "),
			"holdfast cannot see a restart of this server, so its grants never count.",
			fmt.Sprintf("Give the user +info and the rights that %s lists. +config|get shows appendfsync.", rightsPage))
		return
	}
	aof, fsync, pauses := n.config["appendonly"], n.config["appendfsync"], n.config["no-appendfsync-on-rewrite"]
	votesIn := n.lease + n.lease/100 - time.Duration(max(up-1, 0))*time.Second
	if aof == "yes" && fsync == "always" && pauses != "yes" {
		if votesIn > 0 && n.reconfigured(ctx) {
			n.votesIn = votesIn
		}
		return
	}
	n.votesIn = votesIn
	seen := fmt.Sprintf("appendonly is %s, appendfsync %s, no-appendfsync-on-rewrite %s", aof, fsync, pauses)
	if aof == "" || fsync == "" {
		seen = "whether appendfsync is always is not known"
	}
	n.say(codePersistence, SeverityNote, seen,
		fmt.Sprintf("After a restart its grants do not count for %v, the lease, because it may have lost leases.", n.lease),
		"If that is too long, wait until its grants count. Then set appendonly yes, appendfsync always and no-appendfsync-on-rewrite no (CONFIG SET and CONFIG REWRITE), never before: it may then vote at once, without the leases that it lost.")
}

// reconfigured reports whether the persistence of a server that has started lately may have been set
// after its start.
func (n *node) reconfigured(ctx context.Context) bool {
	v, _ := n.look(ctx, "INFO commandstats, whether CONFIG SET has run", "INFO", "commandstats")
	info := fields(v)
	maps.Copy(info, n.info)
	return redis.Reconfigured(info)
}

// reportMute reports a server that does not vote now.
func (n *node) reportMute(voters, majority int) {
	few := fmt.Sprintf("Servers that vote now: %d. A majority is %d", voters, majority)
	lost, lasting := voters < majority, few+", so calls go on."
	if lost {
		lasting = few + ", so nothing is acquired."
	}
	switch {
	case n.err != nil && lost:
		n.say(codeUnreachable, SeverityProblem, "no usable reply: "+n.err.Error(), lasting, lookAt)
	case n.err != nil:
		n.say(codeUnreachable, SeverityWarning, "no usable reply: "+n.err.Error(), lasting, lookAt)
	case n.votesIn > 0 && lost:
		n.say(codeRestart, SeverityProblem, n.young(), lasting, waitHere)
	case n.votesIn > 0:
		n.say(codeRestart, SeverityNote, n.young(), lasting, waitHere)
	}
}

const waitHere = "Wait, and leave appendonly and appendfsync as they are until its grants count."

const lookAt = "Look at this server, the network to it and the rights of the user there."

func (n *node) young() string {
	return fmt.Sprintf("it started %s s ago, and its grants count in %v", n.info["uptime_in_seconds"], n.votesIn.Round(time.Second))
}

// checkSpread compares the clocks of the servers.
func checkSpread(nodes []*node) []Finding {
	var first, last *node
	var spread time.Duration // without the error of both offsets
	for _, a := range nodes {
		for _, b := range nodes {
			if len(a.samples) == 0 || len(b.samples) == 0 {
				continue
			}
			x, y := clock.Quickest(a.samples), clock.Quickest(b.samples)
			if d := x.Offset() - y.Offset() - (x.Took+y.Took)/2; d > spread {
				first, last, spread = a, b, d
			}
		}
	}
	if first == nil || spread <= min(spreadRaised, first.lease) {
		return nil
	}
	consequence := "A grant needs a second round to the servers if their clocks differ by more than 10 s."
	if spread > min(spreadTokens, first.lease) {
		consequence += " If the servers whose clocks are ahead are away, or have lost the tokens in a restart, tokens may become smaller: a resource then refuses the newer holder."
	}
	return []Finding{{
		codeClockSpread, SeverityWarning, "", fmt.Sprintf("the clock of %s is %v ahead of that of %s", first.name, spread.Round(time.Millisecond), last.name),
		consequence, "Let all servers follow NTP by slewing, not by stepping.",
	}}
}
