package redis

import "sync"

// command has the ctx and the arguments of one send of acquire.lua or release.lua. list points to
// the other fields. A command is reused only after a reply, because then nothing reads it any more.
// After an error a group may still read it.
type command struct {
	ctx                           limited
	id, holder, fingerprint       string
	lease, token, retention, park int64
	list                          [15]any
}

var commands = sync.Pool{New: func() any { return new(command) }}

func newCommand() *command {
	return commands.Get().(*command) //nolint:errcheck,forcetypeassert // nothing else is in it
}

// reuse makes a command available to newCommand.
func (c *command) reuse() {
	*c = command{}
	commands.Put(c)
}
