package main

// leases are mistakes in how a lease is kept, lost and ended.
func leases() []mistake {
	return []mistake{
		{
			name: "deadline-from-reply", what: "A grant counts from its reply, not from its request.",
			edits: []edit{{"grant-counts-from", value("time.Now()")}},
			pkg:   "lockcore", test: "TestPeer_etcdDeadlineFromTheReply", fast: true,
		},
		{
			name: "renewal-from-reply", what: "A renewal counts from its reply, not from its request.",
			edits: []edit{{"renewed-from", arg(0, "time.Now()")}},
			pkg:   "lockcore", test: "TestPeer_etcdDeadlineFromTheReply",
		},
		{
			name: "late-grant-kept", what: "A grant whose answer took as long as its lease is used all the same.",
			edits: []edit{
				{"grant-in-time", never()},
				{"hold-of-live-grant", operandNever(1)},
			},
			pkg: "internal/sim", test: "TestLateGrantIsNotKept",
		},
		{
			name: "release-after-ticket", what: "A release after a Ticket frees the key, which another process may have.",
			edits: []edit{{"ticket-against-release", never()}},
			pkg:   "lockcore", test: "TestTicket",
		},
		{
			name: "no-local-timer", what: "Only a reply of Redis, not the holder's own clock, ends a lease.",
			edits: []edit{{"local-timer", arg(0, "($)*3/2")}},
			pkg:   "lockcore", test: "TestLeaseSilence",
		},
		{
			name: "watchdog-one-error", what: "The watchdog ends after one renewal without a reply.",
			edits: []edit{{"renew-again", value("1 << 62")}},
			pkg:   "lockcore", test: "TestLeaseRenewalCut", fast: true,
		},
		{
			name: "late-reply-dropped", what: "The reply to a renewal is thrown away when it takes longer than a sixth of the lease.",
			edits: []edit{{"late-reply", stmt("useful = max(minPassTime, g.lease/6)")}},
			pkg:   "lockcore", test: "TestRenewLateReply",
		},
		{
			name: "watchdog-in-turn", what: "Batches of renewals wait for each other, so that one slow node costs the leases of all.",
			edits: []edit{{"renew-batch", call("$0()")}},
			pkg:   "lockcore", test: "TestPeer_redissonNodesInTurn",
		},
		{
			name: "cold-slot-map", what: "The first renewal in a cluster reads the slot map anew, from any node.",
			edits: []edit{{"shared-slots", never()}},
			pkg:   "lockcore", test: "TestClusterSlotsShared",
		},
		{
			name: "watchdog-noscript", what: "The watchdog takes a server that has forgotten the scripts for one that is away.",
			edits: []edit{{"script-unknown", never()}},
			pkg:   "lockcore", test: "TestPeer_redissonForgottenScripts",
		},
		{
			name: "max-hold-ignored", what: "MaxHold ends nothing: a handler that hangs is renewed for ever.",
			edits: []edit{{"max-hold", skip()}},
			pkg:   "lockcore", test: "TestPeer_redlockNetOrphansRenewedForAWeek",
		},
		{
			name: "stall-ignored", what: "Stall ends nothing: a handler that hangs is renewed for ever.",
			edits: []edit{{"stall", skip()}},
			pkg:   "lockcore", test: "TestPeer_redissonFeedTheDog",
		},
		{
			name: "release-before-return", what: "The key is given back when the handler's ctx ends, although it still runs.",
			edits: []edit{{"exclusive-run", before("defer context.AfterFunc(lease.Context(), func() { _ = lease.Release(ctx) })()")}},
			pkg:   "guard", test: "TestExclusiveIgnoresCtx", fast: true,
		},
		{
			name: "panic-loses-release", what: "A handler that panics leaves its key behind.",
			edits: []edit{
				{"exclusive-release", stmt("release := func() { $ }")},
				{"exclusive-run", stmt("err = func() error { $ }()\nrelease()\nreturn err")},
			},
			pkg: "guard", test: "TestExclusivePanic",
		},
		{
			name: "release-on-callers-ctx", what: "A release runs on the ctx of its caller, and is not sent when that has ended.",
			edits: []edit{
				{"release-outlives-ctx", value("false")},
				{"release-again", stmt("if ctx.Err() == nil { $ }")},
			},
			pkg: "lockcore", test: "TestLeaseCanceledParent", fast: true,
		},
		{
			name: "canceled-grant-kept", what: "A grant whose call is canceled between the reply and its use is renewed without a holder.",
			edits: []edit{{"canceled-grant-passed-on", arg(0, "nil")}},
			pkg:   "lockcore", test: "TestPeer_redissonInterruptedIsRenewed",
		},
		{
			name: "undo-on-callers-ctx", what: "An acquire that is given up is undone on the ctx of its caller, so not at all when that has ended.",
			edits: []edit{{"undo-of-request", value("req.caller.ctx.Err() == nil && ($)")}},
			pkg:   "lockcore", test: "TestPeer_redsyncCanceledAcquireLeavesItsKey",
		},
		{
			name: "no-second-release", what: "A release without a reply is forgotten.",
			edits: []edit{{"release-again", skip()}},
			pkg:   "lockcore", test: "TestMinHoldLostReply",
		},
		{
			name: "reentry-new-token", what: "A nested run gets a token of its own.",
			edits: []edit{{"nested-run", after("h.token++")}},
			pkg:   "lockcore", test: "TestPeer_redissonTokenOfAnother",
		},
		{
			name: "reentry-asks-redis", what: "A nested run asks Redis, and waits for itself.",
			edits: []edit{{"nested-acquire", never()}},
			pkg:   "guard", test: "TestExclusiveNested",
		},
		{
			name: "nested-calls-together", what: "Nested calls of one run are inside at the same time.",
			edits: []edit{{"nested-alone", operandNever(1)}},
			pkg:   "lockcore", test: "TestNestedSibling",
		},
		{
			name: "nested-waiter-not-told", what: "A nested call that waits for another one is not told of the loss of the lease.",
			edits: []edit{{"nested-loss", skip()}},
			pkg:   "lockcore", test: "TestNestedWaiterIsTold",
		},
		{
			name: "inner-run-releases", what: "The first nested run that returns gives the key back.",
			edits: []edit{{"inner-run-left", never()}},
			pkg:   "lockcore", test: "TestLeaseReentry",
		},
		{
			name: "close-frees-keys", what: "Close gives the keys back of handlers that it does not wait for.",
			edits: []edit{{"close-gives-up", after("_, _ = g.l.backend.Release(l.base, g.releaseRequest(outcome{}))")}},
			pkg:   "lockcore", test: "TestCloseInTime",
		},
		{
			name: "lost-lease-handed-over", what: "A lease that was lost is handed to the next in line.",
			edits: []edit{
				{"leader-lost", value("false && $")},
				{"handed-off-if-kept", arg(2, "true || $")},
				{"hand-off-of-live-grant", always()},
				{"hold-of-live-grant", operandNever(0)},
			},
			pkg: "lockcore", test: "TestPeer_etcdWaiterOfALostLease",
		},
		{
			name: "hand-off-same-token", what: "Who gets the key inside the process gets the token of the one before.",
			edits: []edit{{"token-of-hold", value("g.firstToken")}},
			pkg:   "lockcore", test: "TestTurnsEvents",
		},
		{
			name: "hand-off-of-another-lease", what: "Who waits for a lease of another length gets that of the one before.",
			edits: []edit{{"hand-off-of-same-lease", always()}},
			pkg:   "lockcore", test: "TestTurnsOwnLease",
		},
		{
			name: "share-open-for-ever", what: "Calls join a share for as long as it is held, past a writer that waits.",
			edits: []edit{{"share-open-for-a-moment", always()}},
			pkg:   "lockcore", test: "TestShareJoin",
		},
		{
			name: "share-ends-with-a-user", what: "Each user of a share ends it in the backend.",
			edits: []edit{{"last-user-releases", never()}},
			pkg:   "lockcore", test: "TestShareJoin",
		},
		{
			name: "share-handed-on-for-ever", what: "Calls hand a share on past a writer that waits.",
			edits: []edit{{"share-handed-on-for-a-moment", never()}},
			pkg:   "lockcore", test: "TestShareHandOffEnds",
		},
		{
			name: "upgrade-waits", what: "A reader that wants the key alone waits for itself.",
			edits: []edit{{"upgrade-refused", never()}},
			pkg:   "lockcore", test: "TestSharesUpgrade",
		},
	}
}
