package main

// shares are mistakes in the rules and the scripts of shares. The comparison of both finds them,
// and a history finds mistakes that readers can observe.
func shares() []mistake {
	const pkg, test = "internal/backend/memory", "TestDifferentialFixed"
	return []mistake{
		{
			name: "rules-share-not-served", what: "By the rules, the end of a share serves no waiter.",
			edits: []edit{{"rules-share-served", skip()}},
			pkg:   pkg, test: test,
		},
		{
			name: "rules-revocation-of-cooling", what: "By the rules, a revocation lasts until the last permit has cooled.",
			edits: []edit{{"rules-revocation-ends", skip()}},
			pkg:   pkg, test: "TestConformance",
		},
		{
			name: "revocation-of-cooling", what: "A revocation lasts until the last permit has cooled.",
			edits: []edit{{"revocation-ends", skip()}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "rules-head-dropped", what: "By the rules, the first waiter that does not fit is removed at once.",
			edits: []edit{{"rules-head-keeps-its-place", never()}},
			pkg:   pkg, test: test,
		},
		{
			name: "rules-phase-token-of-clock", what: "By the rules, the token of a phase is the time.",
			edits: []edit{{"rules-phase-token", after("token = now")}},
			pkg:   pkg, test: test,
		},
		{
			name: "rules-share-counts-twice", what: "By the rules, a repeat adds the share again.",
			edits: []edit{{"rules-share-counts-once", never()}},
			pkg:   pkg, test: test,
		},
		{
			name: "rules-late-duplicate-share-granted", what: "By the rules, a late duplicate of a request for a share is granted after its end.",
			edits: []edit{{"rules-late-duplicate-share", never()}},
			pkg:   pkg, test: test,
		},
		{
			name: "rules-share-without-room", what: "By the rules, a share is granted without room for it.",
			edits: []edit{{"rules-share-fits", never()}},
			pkg:   pkg, test: test,
		},
		{
			name: "rules-phase-not-passed-on", what: "By the rules, a phase whose shares expired is reserved for no waiter.",
			edits: []edit{{"rules-phase-passed-on", always()}},
			pkg:   pkg, test: test,
		},
		{
			name: "phase-not-passed-on", what: "A phase whose shares expired is reserved for no waiter.",
			edits: []edit{{"phase-passed-on", stmt("local request = false")}},
			pkg:   pkg, test: test,
		},
		{
			name: "late-duplicate-share-granted", what: "A late duplicate of a request for a share is granted after its end.",
			edits: []edit{{"late-duplicate-share", never()}},
			pkg:   pkg, test: test,
		},
		{
			name: "share-overtakes", what: "A request for a share overtakes the queue.",
			edits: []edit{{"share-waits-behind-the-queue", skip()}},
			pkg:   pkg, test: test,
		},
		{
			name: "share-beside-exclusive", what: "A share is granted beside an exclusive hold.",
			edits: []edit{{"share-excluded", skip()}},
			pkg:   "proof/history", test: "TestHistoryShares",
		},
		{
			name: "share-without-room", what: "A share is granted without room for it.",
			edits: []edit{{"share-fits", skip()}},
			pkg:   pkg, test: test,
		},
		{
			name: "share-comes-alone", what: "The request that opens a phase admits none of the requests behind it.",
			edits: []edit{{"share-brings-others", skip()}},
			pkg:   pkg, test: test,
		},
		{
			name: "cooling-share-without-holder", what: "A cooling share loses its holder.",
			edits: []edit{{"cooldown-before-the-end", skip()}},
			pkg:   pkg, test: test,
		},
		{
			name: "phase-end-stays", what: "The end of a phase stays that of a share that was released.",
			edits: []edit{{"latest-end", skip()}},
			pkg:   pkg, test: test,
		},
		{
			name: "share-serves-none", what: "The end of a share serves no waiter.",
			edits: []edit{{"share-served", skip()}},
			pkg:   pkg, test: test,
		},
		{
			name: "left-writer-serves-none", what: "A request for the key alone that gives up serves none of the requests behind it.",
			edits: []edit{{"writer-left", stmt("local served = 0")}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "share-clock-set-back", what: "If the server clock is set back, a share lasts longer by that time.",
			edits: []edit{{"share-ends-with-its-phase", stmt("local kept = member")}},
			pkg:   "internal/backend/redis", test: "TestScriptSharesClock",
		},
		{
			name: "share-renewal-revives", what: "A renewal revives an expired share.",
			edits: []edit{{"renewal-of-own-share", stmt("if not ends then return {0} end")}},
			pkg:   pkg, test: test,
		},
		{
			name: "silent-head-stays", what: "A first waiter whose process is silent keeps all others out.",
			edits: []edit{{"head-keeps-its-place", stmt("do return served end")}},
			pkg:   pkg, test: test,
		},
		{
			name: "sweep-loses-count", what: "The weights of expired shares stay counted.",
			edits: []edit{{"sweep-counts", skip()}},
			pkg:   pkg, test: test,
		},
		{
			name: "phase-token-of-clock", what: "The token of a phase is the time, also if a greater one was used.",
			edits: []edit{{"phase-token", stmt("k.token = k.now")}},
			pkg:   pkg, test: test,
		},
		{
			name: "shares-without-ttl", what: "The set of shares has no TTL.",
			edits: []edit{{"shares-ttl", skip()}},
			pkg:   pkg, test: test,
		},
		{
			name: "share-counts-twice", what: "A repeat counts the weight of its share again.",
			edits: []edit{{"share-counts-once", before("k.weights = k.weights + weight")}},
			pkg:   pkg, test: test,
		},
		{
			name: "cooled-shares-stay", what: "A phase in which all shares cool is kept for a day.",
			edits: []edit{{"cooling-ttl", skip()}},
			pkg:   "lockcore", test: "TestMinHoldForgotten",
		},
		{
			name: "fields-of-cooled-shares-stay", what: "A parked entry keeps the hash of a phase, but not its shares, so their fields stay for ever.",
			edits: []edit{{"shares-outlive-the-hash", skip()}},
			pkg:   "internal/backend/redis", test: "TestScriptParkKeepsCoolingShares",
		},
		{
			name: "expired-shares-refuse", what: "A request is refused because of expired shares that no step has removed yet.",
			edits: []edit{{"swept-before-the-reply", skip()}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "step-not-sent-again", what: "A command that removed a step of expired shares fails.",
			edits: []edit{{"step-sent-again", never()}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "cleanup-step-not-sent-again", what: "A withdrawal that removed a step of expired shares counts as confirmed.",
			edits: []edit{{"cleanup-step-sent-again", always()}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "rules-cooldown-not-told", what: "By the rules, the first waiter is not told when a share has cooled.",
			edits: []edit{{"rules-cooldown-told", stmt("return nil")}},
			pkg:   pkg, test: "TestConformance",
		},
		{
			name: "rules-cooldown-not-announced", what: "By the rules, the release of a key with a MinHold drops the waiters.",
			edits: []edit{{"rules-cooldown-announced", never()}},
			pkg:   pkg, test: "TestConformance",
		},
		{
			name: "cooldown-not-told", what: "The first waiter is not told when a share has cooled.",
			edits: []edit{{"cooldown-told", skip()}},
			pkg:   "lockcore", test: "TestMinHoldRate",
		},
		{
			name: "cooldown-announced-to-the-dead", what: "The end of a cooldown is told to the first waiter although its process has ended.",
			edits: []edit{{"cooldown-announced", value("($) or true")}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "request-after-cooldown-late", what: "The first waiter sends its request some time after the end of the cooldown.",
			edits: []edit{{"request-after-cooldown", value("$.Add(40*time.Millisecond)")}},
			pkg:   "lockcore", test: "TestMinHoldRate",
		},
	}
}
