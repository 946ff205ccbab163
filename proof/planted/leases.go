package main

// leases are mistakes in the renewal, the loss and the end of leases.
func leases() []mistake {
	return []mistake{
		{
			name: "deadline-from-reply", what: "The lease of a grant counts from its reply, not from its request.",
			edits: []edit{{"grant-counts-from", value("time.Now()")}},
			pkg:   "lockcore", test: "TestPeer_etcdDeadlineFromTheReply",
		},
		{
			name: "renewal-from-reply", what: "A renewed lease counts from the reply, not from the request.",
			edits: []edit{{"renewed-from", arg(0, "time.Now()")}},
			pkg:   "lockcore", test: "TestPeer_etcdDeadlineFromTheReply",
		},
		{
			name: "late-grant-kept", what: "A grant whose reply took as long as its lease is used.",
			edits: []edit{
				{"grant-in-time", never()},
				{"hold-of-live-grant", operandNever(1)},
			},
			pkg: "proof/sim", test: "TestLateGrantIsNotKept",
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
			pkg:   "lockcore", test: "TestLeaseRenewalCut",
		},
		{
			name: "late-reply-dropped", what: "The reply to a renewal is dropped if it takes longer than a sixth of the lease.",
			edits: []edit{{"late-reply", stmt("useful = max(minPassTime, g.lease/6)")}},
			pkg:   "lockcore", test: "TestRenewLateReply",
		},
		{
			name: "watchdog-in-turn", what: "Batches of renewals wait for each other, so one slow node causes the loss of all leases.",
			edits: []edit{{"renew-batch", call("$0()")}},
			pkg:   "lockcore", test: "TestPeer_redissonNodesInTurn",
		},
		{
			name: "cold-slot-map", what: "The first renewal in a Cluster reloads the slot map, from any node.",
			edits: []edit{{"shared-slots", never()}},
			pkg:   "internal/backend/redis", test: "TestClusterSlotsShared",
		},
		{
			name: "watchdog-noscript", what: "The watchdog treats a server without the scripts as unavailable.",
			edits: []edit{{"script-unknown", never()}},
			pkg:   "lockcore", test: "TestPeer_redissonForgottenScripts",
		},
		{
			name: "watchdog-broken-connection", what: "A renewal that finds a broken connection counts as one without a reply.",
			edits: []edit{{"renewal-again", never()}},
			pkg:   "internal/backend/redis", test: "TestRenewBrokenConnections",
		},
		{
			name: "watchdog-dials-on", what: "Renewals that an endpoint closes dial again and again.",
			edits: []edit{{"stale-connections", value("($) || again < 2*conn.PoolSize")}},
			pkg:   "internal/backend/redis", test: "TestRenewEndpointCloses",
		},
		{
			name: "watchdog-gives-up", what: "After three renewals without a reply the watchdog sends no other one.",
			edits: []edit{{"most-tries", value("g.renewing >= 3")}},
			pkg:   "lockcore", test: "TestRenewAfterThreeLost",
		},
		{
			name: "max-hold-ignored", what: "MaxHold ends nothing: a handler that hangs is renewed forever.",
			edits: []edit{{"max-hold", skip()}},
			pkg:   "lockcore", test: "TestPeer_redlockNetOrphansRenewedForAWeek",
		},
		{
			name: "stall-ignored", what: "Stall ends nothing: a handler that hangs is renewed forever.",
			edits: []edit{{"stall", skip()}},
			pkg:   "lockcore", test: "TestPeer_redissonFeedTheDog",
		},
		{
			name: "release-before-return", what: "The key is released when the handler's ctx ends, although the handler still runs.",
			edits: []edit{{"exclusive-run", before("defer context.AfterFunc(lease.Context(), func() { _ = lease.Release(ctx) })()")}},
			pkg:   "guard", test: "TestExclusiveIgnoresCtx",
		},
		{
			name: "panic-loses-release", what: "A handler that panics does not release its key.",
			edits: []edit{
				{"exclusive-release", stmt("release := func() { $ }")},
				{"exclusive-run", stmt("err = func() error { $ }()\nrelease()\nreturn err")},
			},
			pkg: "guard", test: "TestExclusivePanic",
		},
		{
			name: "release-on-callers-ctx", what: "A release uses the ctx of its caller, and is not sent if that has ended.",
			edits: []edit{
				{"release-outlives-ctx", value("false")},
				{"release-again", stmt("if ctx.Err() == nil { $ }")},
			},
			pkg: "lockcore", test: "TestLeaseCanceledParent",
		},
		{
			name: "canceled-grant-kept", what: "A grant whose call is canceled between the reply and its use is renewed without a holder.",
			edits: []edit{{"canceled-grant-passed-on", arg(0, "nil")}},
			pkg:   "lockcore", test: "TestPeer_redissonInterruptedIsRenewed",
		},
		{
			name: "undo-on-callers-ctx", what: "An acquire that ends is withdrawn with the ctx of its caller, so not at all if that has ended.",
			edits: []edit{{"undo-of-request", value("req.caller.ctx.Err() == nil && ($)")}},
			pkg:   "lockcore", test: "TestPeer_redsyncCanceledAcquireLeavesItsKey",
		},
		{
			name: "no-second-release", what: "A release without a reply is not repeated.",
			edits: []edit{{"release-again", skip()}},
			pkg:   "lockcore", test: "TestMinHoldLostReply",
		},
		{
			name: "reentry-new-token", what: "A nested run gets another token.",
			edits: []edit{{"nested-run", after("h.token++")}},
			pkg:   "lockcore", test: "TestPeer_redissonTokenOfAnother",
		},
		{
			name: "reentry-asks-redis", what: "A nested run sends a request to Redis, and waits for its own hold.",
			edits: []edit{{"nested-acquire", never()}},
			pkg:   "guard", test: "TestExclusiveNested",
		},
		{
			name: "nested-calls-together", what: "Nested calls of one run have the key at the same time.",
			edits: []edit{{"nested-alone", operandNever(1)}},
			pkg:   "lockcore", test: "TestNestedSibling",
		},
		{
			name: "nested-waiter-not-told", what: "A nested call that waits for another one does not notice the loss of the lease.",
			edits: []edit{{"nested-loss", skip()}},
			pkg:   "lockcore", test: "TestNestedWaiterReturns",
		},
		{
			name: "inner-run-releases", what: "The first nested run that returns releases the key.",
			edits: []edit{{"inner-run-left", never()}},
			pkg:   "lockcore", test: "TestLeaseReentry",
		},
		{
			name: "close-frees-keys", what: "Close releases the keys of handlers that it does not wait for.",
			edits: []edit{{"close-gives-up", after("_, _ = g.l.backend.Release(l.base, g.releaseRequest(outcome{}))")}},
			pkg:   "lockcore", test: "TestCloseInTime",
		},
		{
			name: "lost-lease-handed-off", what: "A lost lease is handed off to the next waiter.",
			edits: []edit{
				{"leader-lost", value("false && $")},
				{"handed-off-if-kept", arg(2, "true || $")},
				{"hand-off-of-live-grant", always()},
				{"hold-of-live-grant", operandNever(0)},
			},
			pkg: "lockcore", test: "TestPeer_etcdWaiterOfALostLease",
		},
		{
			name: "abandoned-handed-off", what: "A hold that was abandoned, or that cools, is handed off to the next waiter.",
			edits: []edit{{"hand-off-without-an-end", value("alive && g.queue.key.Kind == backend.KindExclusive")}},
			pkg:   "lockcore", test: "TestAbandonWithWaiter",
		},
		{
			name: "hand-off-same-token", what: "A hand-off passes on the token of the earlier hold.",
			edits: []edit{{"token-of-hold", value("g.firstToken")}},
			pkg:   "lockcore", test: "TestTurnsEvents",
		},
		{
			name: "hand-off-of-another-lease", what: "A waiter that requests a lease of another length gets the earlier lease.",
			edits: []edit{{"hand-off-of-same-lease", always()}},
			pkg:   "lockcore", test: "TestTurnsOwnLease",
		},
		{
			name: "share-open-for-ever", what: "Calls join a share as long as it is held, and so overtake a writer that waits.",
			edits: []edit{{"share-open-for-a-moment", always()}},
			pkg:   "lockcore", test: "TestShareJoin",
		},
		{
			name: "share-ends-with-a-user", what: "Each user of a share ends it in the backend.",
			edits: []edit{{"last-user-releases", never()}},
			pkg:   "lockcore", test: "TestShareJoin",
		},
		{
			name: "share-handed-on-for-ever", what: "Calls hand a share off, and so overtake a writer that waits.",
			edits: []edit{{"share-handed-on-for-a-moment", never()}},
			pkg:   "lockcore", test: "TestShareHandOffEnds",
		},
		{
			name: "upgrade-waits", what: "A nested call of a reader for the key alone waits for its own share.",
			edits: []edit{{"upgrade-refused", never()}},
			pkg:   "lockcore", test: "TestSharesUpgrade",
		},
	}
}
