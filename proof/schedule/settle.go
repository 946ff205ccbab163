package schedule

// settle ends the schedule without faults. Each waiter must get the key in time, and the server
// must keep no data.
func (w *world) settle() {
	w.trace("from here on there is no fault")
	w.calm, w.late = true, nil
	for len(w.pending) > 0 {
		w.deliver(0)
	}
	for _, p := range w.procs {
		p.quits, p.listening = true, true
	}
	for limit := max(w.now, w.rated.full) + w.settling(); w.serve(); {
		if w.now > limit {
			fail("waits", "a process does not get the key")
		}
	}
	w.look()
	w.now += 73*3600e6 + w.keep
	for name := range w.p.server.Keys(w.server()) {
		fail("left", "%s is left", name)
	}
}

// settling returns the time in which each waiter begins once no fault occurs. With rates each of them
// waits for the costs before it.
func (w *world) settling() int64 {
	if w.rates {
		return 3 * settling
	}
	return settling
}

// serve lets each process act until it waits, and advances the clock until the first of them acts
// again. It returns false if no process wants the key.
func (w *world) serve() bool {
	next, wants := int64(0), false
	for _, p := range w.procs {
		for p.ready() {
			for len(p.cleanups) > 0 {
				p.cleanUp()
			}
			switch p.state {
			case requesting, waiting:
				p.sendRequest()
			case holding:
				p.release(command{})
			case completing:
				p.complete(true)
			default:
			}
			w.checkHolders()
		}
		if p.state == waiting {
			if wants = true; next == 0 || p.req.nextTry < next {
				next = p.req.nextTry
			}
		}
	}
	for _, p := range w.procs {
		wants = wants || p.ready()
		if p.ready() {
			next = w.now
		}
	}
	w.now = max(w.now, next)
	return wants
}

// ready reports whether the process acts now.
func (p *process) ready() bool {
	return len(p.cleanups) > 0 || p.state != idle && p.state != waiting || p.state == waiting && (p.req.signal || p.w.now >= p.req.nextTry)
}
