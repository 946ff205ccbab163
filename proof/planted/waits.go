package main

// waits are mistakes in how calls wait for a key.
func waits() []mistake {
	return []mistake{
		{
			name: "waits-said-always", what: "A process says with each request how many of its calls wait.",
			edits: []edit{{"waits-said-rarely", operandAlways(1)}},
			pkg:   "lockcore", test: "TestWaitingCalls",
		},
		{
			name: "waits-of-one-process", what: "By inspect.lua, each process in the queue has one call that waits.",
			edits: []edit{{"waits-of-processes", skip()}},
			pkg:   "internal/backend/memory", test: "TestDifferentialFixed",
		},
		{
			name: "group-takes-all", what: "A call that has ended before its group is sent is sent with it.",
			edits: []edit{{"leaves-the-group", never()}},
			pkg:   "internal/backend/redis", test: "TestGroupShortCall",
		},
		{
			name: "one-group-only", what: "Calls wait for the group under way without a limit.",
			edits: []edit{{"group-beside", skip()}},
			pkg:   "internal/backend/redis", test: "TestGroupShortCall",
		},
		{
			name: "only-messages", what: "A waiter sends its next request only after a message, so it waits forever if a message is lost.",
			edits: []edit{{"request-again-at", value("$.Add(time.Hour)")}},
			pkg:   "lockcore", test: "TestPeer_rueidislockLostMessage",
		},
		{
			name: "no-lease-timer", what: "A waiter does not send a request when the lease of a holder ends, which may be dead.",
			edits: []edit{{"request-again-at", call("time.Now().Add(max($0, 2*time.Second))")}},
			pkg:   "lockcore", test: "TestPeer_asynqDeadHolderIsFoundLate",
		},
		{
			name: "woken-cleared-after", what: "A signal that arrives between the sending and the reading of a reply is cleared with it.",
			edits: []edit{
				{"hints-cleared", skip()},
				{"reply-noted", before("$(hints-cleared)")},
			},
			pkg: "lockcore", test: "TestPeer_redissonMessageBeforeTheReply",
		},
		{
			name: "unsubscribed-too-early", what: "The first waiter that leaves ends the subscription of all.",
			edits: []edit{{"waiter-removed", after("if s.running { s.cancel() }")}},
			pkg:   "lockcore", test: "TestPeer_rueidisUnsubscribedTooEarly",
		},
		{
			name: "resubscribed-in-silence", what: "Waiters send no request after a subscription is restored.",
			edits: []edit{{"resubscribed", skip()}},
			pkg:   "proof/sim", test: "TestResubscription",
		},
		{
			name: "notification-storm", what: "A forged or repeated message makes a waiter send requests at any rate.",
			edits: []edit{{"futile-hints", never()}},
			pkg:   "lockcore", test: "TestForgedNotification",
		},
		{
			name: "place-not-given-up", what: "A waiter that gives up stays in the wait queue of Redis, and gets a turn.",
			edits: []edit{{"undo-of-request", operandNever(0)}},
			pkg:   "lockcore", test: "TestWaitInVain",
		},
		{
			name: "cleanup-tried-once", what: "A withdrawal that Redis does not confirm is given up after one try.",
			edits: []edit{{"cleanup-tried-again", stmt("q.endLocked(c, err)")}},
			pkg:   "internal/backend/redis", test: "TestCleanupKeptThroughOutage",
		},
		{
			name: "command-sent-once", what: "Extend, Revoke, Clear and Inspect fail when their connection breaks.",
			edits: []edit{{"sent-again", operandAlways(0)}},
			pkg:   "internal/backend/redis", test: "TestRetryBrokenConnection",
		},
		{
			name: "slow-reply-given-up", what: "A reply that a slow server has not sent yet is taken for lost.",
			edits: []edit{{"lost-reply-proved", always()}},
			pkg:   "internal/backend/redis", test: "TestLostReplySlowServer",
		},
		{
			name: "lost-replies-without-limit", what: "A server that answers PING but no script gets a new command every 0.3 s.",
			edits: []edit{{"lost-reply-once", skip()}},
			pkg:   "internal/backend/redis", test: "TestLostReplyTwice",
		},
		{
			name: "asker-fails-alone", what: "A leader that gives up passes the leadership to no waiter.",
			edits: []edit{{"leader-gives-up", skip()}},
			pkg:   "lockcore", test: "TestPeer_rueidislockLeaderGivesUp",
		},
		{
			name: "ended-call-counts-as-failure", what: "A call whose ctx ends with a request under way counts as a failure of Redis.",
			edits: []edit{{"end-of-call-itself", never()}},
			pkg:   "lockcore", test: "TestPeer_redsyncEndOfACanceledCall",
		},
		{
			name: "leader-not-counted", what: "MaxWaiting does not count the call that waits for another process.",
			edits: []edit{{"leader-waits-too", never()}},
			pkg:   "lockcore", test: "TestMaxWaitingOtherProcess",
		},
		{
			name: "judged-before-the-reply", what: "MaxWaiting counts a leader that gets the key, and refuses a call that could wait.",
			edits: []edit{{"place-is-free", operandAlways(0)}},
			pkg:   "lockcore", test: "TestMaxWaitingBeforeReply",
		},
	}
}
