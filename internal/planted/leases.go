package main

// leases are mistakes in how a lease is kept, lost and ended.
func leases() []mistake {
	return []mistake{
		{
			name: "deadline-from-reply", what: "A grant counts from its answer, not from its request.",
			edits: []edit{{"lockcore/answer.go", "abandoned: abandoned == 1, sent: sent, lease", "abandoned: abandoned == 1, sent: time.Now(), lease"}},
			pkg:   "lockcore", test: "TestPeer_etcdDeadlineFromTheReply", fast: true,
		},
		{
			name: "renewal-from-reply", what: "A renewal counts from its answer, not from its request.",
			edits: []edit{{"lockcore/watchdog.go", "g.renewed(start, g.terms.Lease", "g.renewed(time.Now(), g.terms.Lease"}},
			pkg:   "lockcore", test: "TestPeer_etcdDeadlineFromTheReply",
		},
		{
			name: "late-grant-kept", what: "A grant whose answer took as long as its lease is used all the same.",
			edits: []edit{
				{"lockcore/answer.go", "if elapsed(sent) >= usable(c.terms.Lease) {", "if false {"},
				{"lockcore/grant.go", "if g.cause != nil || left <= 0 {", "if g.cause != nil {"},
			},
			pkg: "internal/sim", test: "TestLateGrantIsNotKept",
		},
		{
			name: "no-local-timer", what: "Only an answer of Redis, not the holder's own clock, ends a lease.",
			edits: []edit{{"lockcore/grant.go", "g.timer = time.AfterFunc(left, g.expire)", "g.timer = time.AfterFunc(left+g.lease/2, g.expire)"}},
			pkg:   "lockcore", test: "TestLeaseSilence",
		},
		{
			name: "watchdog-one-error", what: "The watchdog ends after one renewal without an answer.",
			edits: []edit{{"lockcore/watchdog.go", "\t\t\tw.again(g, jitter(g.terms.Lease/20))\n", ""}},
			pkg:   "lockcore", test: "TestLeaseGap", fast: true,
		},
		{
			name: "watchdog-in-turn", what: "Batches of renewals wait for each other, so that one slow node costs the leases of all.",
			edits: []edit{{"lockcore/watchdog.go", "batches.Go(func() { w.renew(batch) })", "w.renew(batch)"}},
			pkg:   "lockcore", test: "TestPeer_redissonNodesInTurn",
		},
		{
			name: "watchdog-noscript", what: "The watchdog takes a server that has forgotten the scripts for one that is away.",
			edits: []edit{{"lockcore/renewal.go", `redis.HasErrorPrefix(r.err, "NOSCRIPT")`, `redis.HasErrorPrefix(r.err, "NEVER")`}},
			pkg:   "lockcore", test: "TestPeer_redissonForgottenScripts",
		},
		{
			name: "max-hold-ignored", what: "MaxHold ends nothing: a handler that hangs is renewed for ever.",
			edits: []edit{{"lockcore/hold.go", "left = min(left, h.maxHold-elapsed(h.granted()))", "_ = left"}},
			pkg:   "lockcore", test: "TestPeer_redlockNetOrphansRenewedForAWeek",
		},
		{
			name: "stall-ignored", what: "Stall ends nothing: a handler that hangs is renewed for ever.",
			edits: []edit{{"lockcore/hold.go", "left = min(left, h.stall-h.silentLocked())", "_ = left"}},
			pkg:   "lockcore", test: "TestPeer_redissonFeedTheDog",
		},
		{
			name: "release-before-return", what: "The key is given back when the handler's ctx ends, although it still runs.",
			edits: []edit{{
				"guard/exclusive.go", "return fn(lease.Context())",
				"defer context.AfterFunc(lease.Context(), func() { _ = lease.Release(ctx) })()\n\treturn fn(lease.Context())",
			}},
			pkg: "guard", test: "TestExclusiveIgnoresCtx", fast: true,
		},
		{
			name: "panic-loses-release", what: "A handler that panics leaves its key behind.",
			edits: []edit{
				{"guard/exclusive.go", "\tdefer func() {\n", "\trelease := func() {\n"},
				{"guard/exclusive.go", "\t}()\n\treturn fn(lease.Context())", "\t}\n\terr = fn(lease.Context())\n\trelease()\n\treturn err"},
			},
			pkg: "guard", test: "TestExclusivePanic",
		},
		{
			name: "release-on-callers-ctx", what: "A release runs on the ctx of its caller, and is not sent when that has ended.",
			edits: []edit{
				{"lockcore/release.go", "args.ctx = limited{Context: ctx, limit: callTimeout, free: free}", "args.ctx = limited{Context: ctx, limit: callTimeout}"},
				{"lockcore/release.go", "\t\th.finishLater(e)\n\t\treturn false, err\n", "\t\tif ctx.Err() == nil {\n\t\t\th.finishLater(e)\n\t\t}\n\t\treturn false, err\n"},
			},
			pkg: "lockcore", test: "TestLeaseCanceledParent", fast: true,
		},
		{
			name: "undo-on-callers-ctx", what: "An acquire that is given up is undone on the ctx of its caller, so not at all when that has ended.",
			edits: []edit{{"lockcore/ask.go", "if a.queued || a.unsettled || a.repeated {", "if a.by.ctx.Err() == nil && (a.queued || a.unsettled || a.repeated) {"}},
			pkg:   "lockcore", test: "TestPeer_redsyncCanceledAcquireLeavesItsKey",
		},
		{
			name: "no-second-release", what: "A release without an answer is forgotten.",
			edits: []edit{{"lockcore/release.go", "\t\th.finishLater(e)\n\t\treturn false, err\n", "\t\treturn false, err\n"}},
			pkg:   "lockcore", test: "TestMinHoldLostAnswer",
		},
		{
			name: "reentry-new-token", what: "A nested run gets a token of its own.",
			edits: []edit{{"lockcore/reentry.go", "\th.runs++\n", "\th.runs++\n\th.token++\n"}},
			pkg:   "lockcore", test: "TestPeer_redissonTokenOfAnother",
		},
		{
			name: "reentry-asks-redis", what: "A nested run asks Redis, and waits for itself.",
			edits: []edit{{"lockcore/locker.go", "h := holdIn(ctx, l, KindExclusive, key); h != nil && h.enter()", "h := holdIn(ctx, l, KindExclusive, key); h != nil && false"}},
			pkg:   "guard", test: "TestExclusiveNested",
		},
		{
			name: "inner-run-releases", what: "The first nested run that returns gives the key back.",
			edits: []edit{{"lockcore/hold.go", "if h.runs--; h.runs > 0 {", "if h.runs--; h.closed {"}},
			pkg:   "lockcore", test: "TestLeaseReentry",
		},
		{
			name: "close-frees-keys", what: "Close gives the keys back of handlers that it does not wait for.",
			edits: []edit{{"lockcore/close.go", "\t\tg.lose(ErrGivenUp)\n", "\t\tg.lose(ErrGivenUp)\n\t\t_, _, _ = g.sendEnd(l.base, ending{}, false, true)\n"}},
			pkg:   "lockcore", test: "TestCloseInTime",
		},
		{
			name: "lost-lease-handed-over", what: "A lease that was lost is handed to the next in line.",
			edits: []edit{
				{"lockcore/turns.go", "\tmine := ln.g == g\n", "\tmine := false\n"},
				{"lockcore/lease.go", "h.end(ctx, e, r.Lost == nil && !expired)", "h.end(ctx, e, true)"},
				{"lockcore/grant.go", "g.line.kind == KindExclusive && g.cause == nil && g.next", "g.line.kind == KindExclusive && g.next"},
				{"lockcore/grant.go", "if g.cause != nil || left <= 0 {", "if left <= 0 {"},
			},
			pkg: "lockcore", test: "TestPeer_etcdWaiterOfALostLease",
		},
		{
			name: "handover-same-token", what: "Who gets the key inside the process gets the token of the one before.",
			edits: []edit{{"lockcore/grant.go", "c.terms.MaxHold, c.ctx, g.next, g.abandoned", "c.terms.MaxHold, c.ctx, g.top - tokenBlock + 1, g.abandoned"}},
			pkg:   "lockcore", test: "TestTurnsEvents",
		},
		{
			name: "handover-of-another-lease", what: "Who waits for a lease of another length gets that of the one before.",
			edits: []edit{{"lockcore/grant.go", "g.next <= g.top && g.lease == c.terms.Lease &&", "g.next <= g.top &&"}},
			pkg:   "lockcore", test: "TestTurnsOwnLease",
		},
	}
}
