package redistest

import "time"

// ControlAt returns a control that a test drives, from that time on.
func ControlAt(start time.Time) *Control { return &Control{beat: start} }

// Ended tells c when a hand-over has ended.
func (c *Control) Ended(now time.Time) { c.ended(now) }
