package redis

import "sync"

// command contains the ctx and the arguments of one send of acquire.lua or release.lua. list points
// to the other fields. A command is reused only after a reply, because after an error a group may
// still read it. In a cluster a command is not reused, because a hook that the user's NewClient has
// added may keep it.
type command struct {
	ctx                               limited
	id, holder, fingerprint           string
	lease, token, retention, cooldown int64
	list                              [15]any
}

var commands = sync.Pool{New: func() any { return new(command) }}

func newCommand() *command {
	return commands.Get().(*command) //nolint:errcheck,forcetypeassert // nothing else is in it
}

// reuse returns a command that got a reply to the pool.
func (c *conn) reuse(cmd *command) {
	if c.single {
		*cmd = command{}
		commands.Put(cmd)
	}
}
