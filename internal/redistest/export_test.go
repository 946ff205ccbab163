package redistest

import "time"

// ControlAt returns a control that starts at that time and is driven by the test.
func ControlAt(start time.Time) *Control { return &Control{beat: start} }

// Ended reports to c that a pass has ended.
func (c *Control) Ended(now time.Time) { c.ended(now) }
