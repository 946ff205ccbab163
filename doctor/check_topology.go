package doctor

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

const sentinelChannel = "__sentinel__:hello" // every Sentinel subscribes to it on each server that it watches

// checkReplication examines replicas, and whether a failover loses data.
func (n *node) checkReplication(ctx context.Context) {
	role, ok := n.info["role"]
	if !ok {
		if v, seen := n.look(ctx, "ROLE", "ROLE"); seen {
			if list, _ := v.([]any); len(list) > 0 {
				role = fmt.Sprint(list[0])
			}
		}
	}
	if role == "slave" {
		n.say(codeReplica, SeverityProblem, "it is a replica",
			"It refuses writes, so nothing can be acquired. If it accepts them (replica-read-only no), other servers do not have its grants.",
			"Connect to the primary: by redis.NewFailoverClient without ReplicaOnly with Sentinel, or redis.NewClusterClient in a Cluster.")
		return
	}
	if replicas := count(n.info, "connected_slaves"); replicas > 0 {
		n.say(codeFailover, SeverityNote, fmt.Sprintf("%d connected replicas", replicas),
			"Replication is asynchronous: a failover may lose the last grants and records. Then two holders may run until the old primary stops replying, and for at most a lease more.",
			"Check the fencing token (Lease.Token) in each resource where an overlap would do harm. It keeps growing, so the resource can refuse the older holder. Options.ReplicaAcks makes such a loss rarer.")
		n.checkMinReplicas()
	} else if good := count(n.info, "min_slaves_good_slaves"); good >= 0 {
		n.checkMinReplicas()
	}
	if replicas, ok := n.info["connected_slaves"]; ok && count(n.info, "connected_slaves") < int64(n.acks) {
		n.lacksReplicas(replicas+" are connected", "")
	}
	n.checkSentinel(ctx)
}

// lacksReplicas reports fewer replicas than the Locker waits for.
func (n *node) lacksReplicas(have, more string) {
	n.say(codeReplicaAcks, SeverityProblem, fmt.Sprintf("Options.ReplicaAcks waits for %d replicas, and %s", n.acks, have),
		"Nothing can be acquired: every call ends with ErrReplicaAcks.", "Bring the replicas back, or lower ReplicaAcks.N."+more)
}

func (n *node) checkMinReplicas() {
	good, want, lag := count(n.info, "min_slaves_good_slaves"), count(n.config, "min-replicas-to-write"), count(n.config, "min-replicas-max-lag")
	lease := n.lease
	switch {
	case good < 0 && (want <= 0 || lag <= 0): // INFO has the field only if both settings are on; CONFIG may be refused
		n.say(codeMinReplicas, SeverityWarning, "there are replicas, and min-replicas-to-write or min-replicas-max-lag is 0",
			"A primary that is cut off from its replicas, or comes back after a failover, grants keys for seconds beside the new primary: about 10 s measured with Sentinel.",
			"Set min-replicas-to-write 1 and min-replicas-max-lag 1: it then stops within a second or two.")
	case good >= 0 && good < want:
		n.say(codeMinReplicas, SeverityProblem, fmt.Sprintf("min-replicas-to-write is %d, and %d replicas keep up", want, good),
			"Redis refuses writes (NOREPLICAS): nothing is acquired, renewed or released.", "Bring the replicas back, or lower the setting.")
	case want > 0 && time.Duration(lag)*time.Second >= lease:
		n.say(codeMinReplicas, SeverityWarning, fmt.Sprintf("min-replicas-max-lag is %d s, the lease %v", lag, lease),
			"A primary that is cut off grants keys for that long beside the new primary.", "Set min-replicas-max-lag 1, or at least well below the lease.")
	}
}

// checkSentinel reports Sentinels beside a client with a fixed address, which stays connected to a
// primary that was replaced.
func (n *node) checkSentinel(ctx context.Context) {
	if subscribers := n.sentinels(ctx); subscribers > 0 && n.b.Own() && n.b.Single() {
		n.say(codeSentinel, SeverityWarning, "Sentinels watch this server ("+strconv.FormatInt(subscribers, 10)+" subscribers), and the client has a fixed address",
			"After a failover this client stays connected to the old primary. That one grants keys beside the new primary until it is a replica, and then refuses writes.",
			"Make the client with redis.NewFailoverClient, and use that client only for the Locker.")
	}
}

// sentinels returns how many Sentinels watch the server.
func (n *node) sentinels(ctx context.Context) (subscribers int64) {
	v, _ := n.look(ctx, "PUBSUB NUMSUB, whether Sentinels watch it", "PUBSUB", "NUMSUB", sentinelChannel)
	switch v := v.(type) {
	case []any:
		if len(v) == 2 {
			subscribers, _ = v[1].(int64)
		}
	case map[any]any:
		subscribers, _ = v[sentinelChannel].(int64)
	}
	return subscribers
}

// checkCluster examines the slots of a Cluster, and whether the client is one for a Cluster.
func (n *node) checkCluster(ctx context.Context) {
	if n.info["cluster_enabled"] == "1" && n.b.Single() {
		n.say(codeClusterClient, SeverityProblem, "it is a node of a Cluster, and the client is one for a single server",
			"Keys whose slots are elsewhere are refused (MOVED), and receivers of messages on other nodes are not counted.",
			"Make the client with redis.NewClusterClient.")
	}
	if n.info["cluster_enabled"] != "1" {
		return
	}
	v, ok := n.look(ctx, "CLUSTER INFO", "CLUSTER", "INFO")
	if !ok {
		return
	}
	facts := fields(v)
	if state := facts["cluster_state"]; state != "ok" || facts["cluster_slots_assigned"] != "16384" || count(facts, "cluster_slots_fail") > 0 {
		n.say(codeClusterState, SeverityProblem, fmt.Sprintf("cluster_state is %s, %s of 16384 slots are assigned, %s of them fail",
			state, facts["cluster_slots_assigned"], facts["cluster_slots_fail"]),
			"Keys of slots that no node serves, or all keys, can be neither acquired nor renewed.", "Look at CLUSTER NODES; redis-cli --cluster check names the missing slots.")
	}
}

// checkClient returns the findings that are not about one server.
func (e *examination) checkClient(ctx context.Context, nodes []*node) []Finding {
	var findings []Finding
	if !e.b.Own() {
		seen := "a wrapped client, which a Locker cannot copy"
		if e.b.Single() {
			seen = "a failover client, which a Locker cannot copy"
		}
		findings = append(findings, Finding{
			codeSharedClient, SeverityNote, "", seen,
			"The Locker uses it as it is: other commands that block its pool delay renewals, and leases may be lost. Behind a wrapper only one server was checked.",
			"Use a separate client for the Locker.",
		})
	}
	return append(findings, e.checkChannel(ctx, nodes)...)
}
