package main

import "sync"

// counter counts the runs of a handler, and the runs at the same time.
type counter struct {
	mu              sync.Mutex
	runs, now, most int
	idle            chan struct{} // closed when the last run returns
}

func (c *counter) enter() (run, now int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == 0 {
		c.idle = make(chan struct{})
	}
	c.runs++
	c.now++
	c.most = max(c.most, c.now)
	return c.runs, c.now
}

func (c *counter) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now--; c.now == 0 {
		close(c.idle)
	}
}

// row waits until every run has returned, including those that asynq has given up, and returns the
// counts.
func (c *counter) row(state string) row {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.now > 0 {
		idle := c.idle
		c.mu.Unlock()
		<-idle
		c.mu.Lock()
	}
	return row{runs: c.runs, most: c.most, state: state}
}
