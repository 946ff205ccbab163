package redis

import (
	"sync"

	"github.com/holdfast-go/holdfast/internal/backend/redis/conn"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// command has the ctx of one send of acquire.lua or release.lua, and memory for its arguments. A
// command is reused only after a reply, because after an error a group may still read it. In a
// cluster a command is not reused, because a hook that the user's NewClient has added may keep it.
type command struct {
	ctx conn.Limited
	wire.Room
}

var commands = sync.Pool{New: func() any { return new(command) }}

func newCommand() *command {
	return commands.Get().(*command) //nolint:errcheck,forcetypeassert // nothing else is in it
}

// reuse returns a command that got a reply to the pool.
func (c *sender) reuse(cmd *command) {
	if c.Single {
		*cmd = command{}
		commands.Put(cmd)
	}
}
