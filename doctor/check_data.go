package doctor

import (
	"fmt"
	"strconv"
)

const memoryFull = 90 // percent

// checkMemory examines settings that evict keys, and whether the memory limit is near.
func (n *node) checkMemory() {
	limit, _ := n.fact("maxmemory", "maxmemory")
	if policy, ok := n.fact("maxmemory_policy", "maxmemory-policy"); ok && policy != "noeviction" {
		severity, seen := SeverityProblem, fmt.Sprintf("maxmemory-policy is %s, maxmemory %s bytes", policy, limit)
		consequence := "At that limit Redis drops keys silently, also held and done ones: then two holders run at once, and done keys run again. Every key of holdfast has a TTL, so volatile-* is no better than allkeys-*."
		if limit == "0" {
			severity, seen = SeverityWarning, fmt.Sprintf("maxmemory-policy is %s, without a maxmemory", policy)
			consequence = "Redis evicts nothing today. Once maxmemory is set, it drops held keys and records silently."
		}
		n.say(codeEviction, severity, seen, consequence,
			"Set maxmemory-policy noeviction. If a cache on this server needs another policy, give holdfast a separate Redis.")
	}
	used, most := count(n.info, "used_memory"), count(n.info, "maxmemory")
	if used < 0 || most <= 0 || used/most*100+used%most*100/most < memoryFull {
		return
	}
	severity := SeverityWarning
	if used >= most {
		severity = SeverityProblem
	}
	n.say(codeMemory, severity, fmt.Sprintf("%d of %d bytes of maxmemory are used", used, most),
		"At the limit new keys are refused with ErrUnavailable. Held leases are still renewed and released.",
		"Raise maxmemory, delete other data, or shorten Keep.")
}

// checkPersistence examines what a crash or a restart loses.
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
	case !known: // codeNotSeen reports it
	case aof != "1" && saves && save == "":
		n.say(codePersistence, SeverityWarning, "no persistence: neither an AOF nor snapshots",
			"A restart loses all grants and records: a key may have two holders for as long as a lease, and done keys run again.",
			"Set appendonly yes and appendfsync always."+rule)
	case aof != "1":
		n.say(codePersistence, SeverityWarning, "no AOF: "+snapshots(save),
			"A crash loses the grants and records since the last snapshot, and restores holds that were released since.",
			"Set appendonly yes and appendfsync always."+rule)
	case fsync == "everysec":
		n.say(codePersistence, SeverityNote, "AOF with appendfsync everysec",
			"If the machine crashes, the grants and records of the last second or two are lost: a key may have a second holder for at most a lease, and a handler may run again.",
			"Set appendfsync always if you cannot accept that."+rule)
	case fsync == "no":
		n.say(codePersistence, SeverityWarning, "AOF with appendfsync no",
			"If the machine crashes, the grants and records that the operating system has not written yet are lost, typically half a minute of them.",
			"Set appendfsync always, or at least everysec."+rule)
	case fsync == "":
		n.say(codePersistence, SeverityNote, "AOF, and appendfsync is not known",
			"A crash of the machine loses the last second or two with everysec, about half a minute with no, and nothing with always.",
			"Check the setting with the operator of the server.")
	}
}

func snapshots(save string) string {
	if save == "" {
		return "snapshots at most"
	}
	return "snapshots only, by save " + strconv.Quote(save)
}

// checkDisk reports writes to disk that failed. By default, Redis then refuses all writes
// (MISCONF).
func (n *node) checkDisk() {
	for _, field := range []string{"rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"} {
		status, ok := n.info[field]
		if !ok || status == "ok" {
			continue
		}
		n.say(codeDisk, SeverityProblem, field+" is "+strconv.Quote(status),
			"Redis may refuse all writes (MISCONF): nothing is acquired, renewed or released until it can write again. A restart loses the data that is not on disk.",
			"Look at the server's log, its disk and the rights of its directory.")
	}
}
