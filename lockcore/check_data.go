package lockcore

import (
	"fmt"
	"strconv"
)

const memoryFull = 90 // percent

// checkMemory: what evicts keys, and what refuses new ones.
func (n *node) checkMemory() {
	limit, _ := n.fact("maxmemory", "maxmemory")
	if policy, ok := n.fact("maxmemory_policy", "maxmemory-policy"); ok && policy != "noeviction" {
		severity, seen := SeverityProblem, fmt.Sprintf("maxmemory-policy is %s, maxmemory %s bytes", policy, limit)
		consequence := "At that limit Redis drops keys silently, held ones too: then two holders run at once, and what is done runs again. Every key of holdfast has a TTL, so volatile-* is no better than allkeys-*."
		if limit == "0" {
			severity, seen = SeverityWarning, fmt.Sprintf("maxmemory-policy is %s, without a maxmemory", policy)
			consequence = "Nothing is evicted today. Once somebody sets maxmemory, held keys and records are dropped silently."
		}
		n.say(CodeEviction, severity, seen, consequence,
			"Set maxmemory-policy noeviction. Where a cache needs another one, give holdfast a Redis of its own.")
	}
	used, most := count(n.info, "used_memory"), count(n.info, "maxmemory")
	if used < 0 || most <= 0 || used/most*100+used%most*100/most < memoryFull {
		return
	}
	severity := SeverityWarning
	if used >= most {
		severity = SeverityProblem
	}
	n.say(CodeMemory, severity, fmt.Sprintf("%d of %d bytes of maxmemory are used", used, most),
		"At the limit new keys are refused with ErrUnavailable; leases that are held are still renewed and released.",
		"Raise maxmemory, remove what is not needed, or shorten Keep.")
}

// checkPersistence: what a crash or a restart forgets.
func (n *node) checkPersistence() {
	const rule = " Without it, start a server that stopped only after the longest lease is over: then no two holders meet, but records are still lost."
	aof, known := n.info["aof_enabled"]
	if !known {
		switch n.config["appendonly"] {
		case "yes":
			aof, known = "1", true
		case "no":
			known = true
		}
	}
	save, saves := n.config["save"]
	fsync := n.config["appendfsync"]
	switch {
	case !known: // said by not-seen
	case aof != "1" && saves && save == "":
		n.say(CodePersistence, SeverityWarning, "no persistence: neither an AOF nor snapshots",
			"A restart forgets who holds what and what is done: two holders for as long as a lease, and records are gone.",
			"Set appendonly yes and appendfsync always."+rule)
	case aof != "1":
		n.say(CodePersistence, SeverityWarning, "no AOF: "+snapshots(save),
			"A crash forgets what was granted and recorded since the last snapshot, and brings back what was released since.",
			"Set appendonly yes and appendfsync always."+rule)
	case fsync == "everysec":
		n.say(CodePersistence, SeverityNote, "AOF with appendfsync everysec",
			"If the machine crashes, the last second or two of grants and records are lost: a second holder for at most a lease, a handler that runs again.",
			"Set appendfsync always where that is too much."+rule)
	case fsync == "no":
		n.say(CodePersistence, SeverityWarning, "AOF with appendfsync no",
			"If the machine crashes, what the operating system has not written yet is lost, typically half a minute of grants and records.",
			"Set appendfsync always, or at least everysec."+rule)
	case fsync == "":
		n.say(CodePersistence, SeverityNote, "AOF, and appendfsync is not known",
			"With everysec a crash of the machine loses the last second or two, with no about half a minute, with always nothing.",
			"Ask who runs the server.")
	}
	n.checkDisk()
}

func snapshots(save string) string {
	if save == "" {
		return "snapshots at most"
	}
	return "snapshots only, by save " + strconv.Quote(save)
}

// checkDisk: writes that failed. Redis then refuses writes (MISCONF), unless told otherwise.
func (n *node) checkDisk() {
	for _, field := range []string{"rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"} {
		status, ok := n.info[field]
		if !ok || status == "ok" {
			continue
		}
		n.say(CodeDisk, SeverityProblem, field+" is "+strconv.Quote(status),
			"Redis may refuse all writes (MISCONF): nothing is acquired, renewed or released until it can write again. A restart forgets what is not on disk.",
			"Look at the server's log, its disk and the rights of its directory.")
	}
}
