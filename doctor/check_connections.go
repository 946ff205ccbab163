package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const smallBuffer = 64 << 10 // bytes; a message is about 100

// checkConnections examines settings of the server that end or keep connections.
func (n *node) checkConnections() {
	if s := count(n.config, "timeout"); s > 0 {
		n.say(codeIdleTimeout, SeverityNote, fmt.Sprintf("timeout is %d s", s),
			"The server closes connections that are idle for that long. A command on a closed connection is sent again, which costs a round trip. Subscriptions are not closed.",
			"Set timeout 0, or the client's ConnMaxIdleTime below it.")
	}
	if n.config["tcp-keepalive"] == "0" {
		n.say(codeKeepalive, SeverityWarning, "tcp-keepalive is 0",
			"The connection of a machine that died without closing it stays subscribed. A key that is reserved for that machine costs the other waiters half a second.",
			"Set tcp-keepalive 60 or so; 300 is Redis's default.")
	}
	n.checkBuffer()
	switch ms := count(n.config, "lua-time-limit"); {
	case ms == 0:
		n.say(codeReplyThreshold, SeverityNote, "lua-time-limit (busy-reply-threshold) is 0",
			"A server that a script blocks does not reply BUSY: calls end with a timeout, and SCRIPT KILL has no effect.",
			"Set busy-reply-threshold to some seconds; 5000 ms is Redis's default.")
	case ms > 0 && time.Duration(ms)*time.Millisecond > n.lease:
		n.say(codeReplyThreshold, SeverityNote, fmt.Sprintf("lua-time-limit (busy-reply-threshold) is %d ms, longer than the lease", ms),
			"Until then a server that a script blocks does not reply, and SCRIPT KILL has no effect: all leases end first.",
			"Set busy-reply-threshold below the lease; 5000 ms is Redis's default.")
	}
}

// checkBuffer parses "class hard soft seconds class hard soft seconds …".
func (n *node) checkBuffer() {
	f := strings.Fields(n.config["client-output-buffer-limit"])
	for i := 0; i+3 < len(f); i += 4 {
		hard, err := strconv.ParseInt(f[i+1], 10, 64)
		soft, err2 := strconv.ParseInt(f[i+2], 10, 64)
		if f[i] != "pubsub" || err != nil || err2 != nil {
			continue
		}
		if hard > 0 && hard < smallBuffer || soft > 0 && soft < smallBuffer {
			n.say(codePubSubBuffer, SeverityWarning, fmt.Sprintf("client-output-buffer-limit pubsub is %d bytes hard, %d soft", hard, soft),
				"A burst of messages ends the subscription. No key is lost, but waiters send their requests again only after up to 2 s.",
				"Set it back to Redis's default, 32mb 8mb 60.")
		}
	}
}
