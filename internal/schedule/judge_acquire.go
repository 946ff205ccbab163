package schedule

import "github.com/holdfast-go/holdfast/internal/backend"

// acquired judges the reply to the request id, which c sent.
func (j *judge) acquired(c *command, id string, r *reply) {
	switch r.outcome {
	case backend.OutcomeGranted:
		j.says(c, r.parked)
		j.granted(c, id, r)
	case backend.OutcomeBusy:
		j.busy(c, id, r)
	case backend.OutcomeDone:
		if j.record == nil || r.record != j.record.data || j.now > j.record.until+1000 {
			fail("G", "%s gets the record %q, and the key has %+v", id, r.record, j.record)
		}
		j.says(c, r.parked)
		j.forget(id)
	case backend.OutcomeAbandoned:
		if may, _ := j.isAbandoned(); !may || c.mode != atMostOnce {
			fail("E", "%s is refused, and the key is not abandoned", id)
		}
		j.keptUntil = max(j.keptUntil, j.now+c.retention)
	case backend.OutcomeEnded:
		own := j.hold != nil && j.hold.id == id
		if !j.ended[id] && !(own && (!j.live() || j.hold.revoked)) {
			fail("C", "%s is refused as ended, and it is not", id)
		}
	default:
		fail("C", "%s gets outcome %v", id, r.outcome)
	}
}

// isAbandoned reports whether the next grant may, and whether it must, report an abandoned hold.
func (j *judge) isAbandoned() (may, must bool) {
	may = j.abandoned || j.hold != nil
	return may, may && j.now < j.keptUntil
}

func (j *judge) granted(c *command, id string, r *reply) {
	if j.ended[id] {
		fail("C", "%s is granted, and it has ended", id)
	}
	if j.holds(id) {
		if c.op == rotate { // a repeat, which does not extend the lease
			return
		}
		if r.token < j.hold.token || r.token >= j.hold.token+backend.TokensPerGrant {
			fail("B", "%s gets token %d, and has %d", id, r.token, j.hold.token)
		}
		j.hold.end = max(j.hold.end, j.now+c.lease)
		return
	}
	may, must := j.isAbandoned()
	switch {
	case j.live():
		fail("A", "%s is granted, and %s holds the key", id, j.hold.id)
	case j.sharesLive():
		fail("A", "%s is granted, and the key has the shares %+v", id, j.phase.shares)
	case j.hold != nil && j.hold.id == id && j.now < j.keptUntil:
		fail("A", "%s is granted again after its lease has expired", id)
	case j.now < j.reservedUntil && j.reserved != id:
		fail("F", "%s is granted, and the key is reserved for %s", id, j.reserved)
	case j.now < j.coolUntil:
		fail("F", "%s is granted, and the key is cooling", id)
	case j.record != nil && j.now < j.record.until-1000:
		fail("G", "%s is granted, and the key has a record", id)
	case r.token <= j.token:
		fail("B", "%s gets token %d after %d", id, r.token, j.token)
	case r.abandoned && !may || !r.abandoned && must:
		fail("E", "%s is granted with abandoned %v", id, r.abandoned)
	case must && c.mode == atMostOnce:
		fail("E", "%s is granted, and must be refused", id)
	case j.once && r.attempt != j.attempts+1 && (j.now < j.counted || r.attempt != 1):
		fail("E", "%s is granted as run %d, and there were %d", id, r.attempt, j.attempts)
	}
	j.attempts, j.counted = r.attempt, j.now+c.retention
	j.keeps(c.retention)
	j.hold = &held{id: id, locker: c.locker, token: r.token, end: j.now + c.lease}
	j.abandoned, j.keptUntil, j.token, j.record = r.abandoned, j.now+c.retention, r.token, nil
	j.reserved, j.reservedUntil, j.coolUntil, j.phase = "", 0, 0, nil
	j.forget(id)
}

func (j *judge) busy(c *command, id string, r *reply) {
	until := int64(0)
	switch {
	case j.holds(id) && (c.op == acquire || !j.hold.revoked):
		fail("A", "%s is busy by itself", id)
	case j.live():
		until = j.hold.end
	case j.sharesLive():
		until = j.phase.end()
	case j.now < j.reservedUntil && j.reserved != id:
		until = j.reservedUntil
	case j.now < j.coolUntil:
		until = j.coolUntil
	case c.op == acquire:
		fail("F", "%s is busy, and no process has the key", id)
	}
	if c.op == acquire && r.remaining != until-j.now {
		fail("F", "%s is busy for %d µs, want %d", id, r.remaining, until-j.now)
	}
	if c.op == acquire && j.live() && r.record != j.hold.answer {
		fail("T", "%s is busy with the interim answer %q, want %q", id, r.record, j.hold.answer)
	}
	if c.queue && (c.op == acquire || r.done) {
		j.enqueued(c, id)
	}
}
