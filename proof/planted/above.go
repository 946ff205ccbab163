package main

// above are mistakes in the packages on top of lockcore.
func above() []mistake {
	return []mistake{
		{
			name: "keys-as-named", what: "Several keys are acquired in the order in which the call names them, so two calls wait for each other.",
			edits: []edit{{"all-in-order", skip()}},
			pkg:   "guard", test: "TestAllOppositeOrder",
		},
		{
			name: "limits-as-named", what: "LimitedAll acquires its limits in the order of its argument.",
			edits: []edit{{"limits-in-order", skip()}},
			pkg:   "guard", test: "TestLimitedAllOppositeOrder",
		},
		{
			name: "keys-cool-without-run", what: "A key that is released because another one was busy is kept for MinHold.",
			edits: []edit{{"all-not-cooling", never()}},
			pkg:   "guard", test: "TestAllBusy",
		},
		{
			name: "entry-stays-on-other-key", what: "A task that is parked on one of its keys keeps its parked entry on another one.",
			edits: []edit{{"other-keys-left", always()}},
			pkg:   "middleware/asynqmw", test: "TestExclusiveAllMoves",
		},
		{
			name: "rest-of-wait-is-default", what: "After the whole Wait, the call waits for the next key for the default time.",
			edits: []edit{{"all-wait", never()}},
			pkg:   "guard", test: "TestAllWaitIsOver",
		},
		{
			name: "other-payload-replayed", what: "A call with another payload gets the record of the first payload.",
			edits: []edit{
				{"other-payload", never()},
				{"plain-record-of-other-payload", never()},
				{"record-of-other-payload", never()},
			},
			pkg: "guard", test: "TestOnceFingerprint",
		},
		{
			name: "other-payload-unreported", what: "A done key that is called with another payload is replayed without an event.",
			edits: []edit{{"payload-differs", never()}},
			pkg:   "middleware/asynqmw", test: "TestOncePayloadDiffers",
		},
		{
			name: "failure-recorded", what: "A run that failed is recorded, and its retry is a no-op.",
			edits: []edit{{"failure-is-final", value("true")}},
			pkg:   "guard", test: "TestOnceFailure",
		},
		{
			name: "once-waits-inside", what: "A Once inside a hold of another key waits for a run of its own key, and keeps the other key from other work.",
			edits: []edit{{"waits-inside-a-hold", skip()}},
			pkg:   "guard", test: "TestOnceInsideHold",
		},
		{
			name: "takeover-forgotten", what: "A takeover that fails releases its key, so no later run learns of the abandoned one.",
			edits: []edit{{"takeover-stays", never()}},
			pkg:   "guard", test: "TestOnceTakeoverFails",
		},
		{
			name: "refusal-recorded", what: "An inner guard that did not let the handler run makes the outer one record a failure.",
			edits: []edit{{"conflict-has-no-effect", call("$0")}},
			pkg:   "middleware/asynqmw", test: "TestOnceAroundBusyExclusive",
		},
		{
			name: "conflict-uses-a-retry", what: "A task whose key is busy uses up a retry of asynq.",
			edits: []edit{{"counted-as-failure", operandAlways(0)}},
			pkg:   "middleware/asynqmw", test: "TestBusyRetryLater",
		},
		{
			name: "once-without-type", what: "Tasks of two types with the same key share a record.",
			edits: []edit{{"once-key-has-type", call("$0[:0]")}},
			pkg:   "middleware/asynqmw", test: "TestOnceReplay",
		},
		{
			name: "tick-by-the-clock", what: "A tick is named by the time at which it runs, not by that of the schedule.",
			edits: []edit{{"tick-time", value("s.now().Truncate(time.Second).In(s.zone)")}},
			pkg:   "middleware/cronmw", test: "TestAddToOvertaken",
		},
		{
			name: "claim-withdrawn-at-stop", what: "An instance that stops withdraws its claim of a tick that the others have seen as held.",
			edits: []edit{{"claim-withdrawn", always()}},
			pkg:   "middleware/cronmw", test: "TestStopWhileClaiming",
		},
		{
			name: "late-goroutine-next-tick", what: "A cron goroutine that starts late takes the tick that comes next.",
			edits: []edit{{"tick-taken", after("at = j.ticks.Schedule.Next(time.Now())")}},
			pkg:   "middleware/cronmw", test: "TestAddToLateGoroutine",
		},
		{
			name: "scope-not-in-key", what: "Two tenants with the same key get each other's responses.",
			edits: []edit{{"digest-parts", arg(2, "$[:0]")}},
			pkg:   "middleware/httpmw", test: "TestKeysNeverMeet",
		},
		{
			name: "body-not-compared", what: "A request with the same key and another body counts as the same request.",
			edits: []edit{{"fingerprint-has-body", value("$[:0]")}},
			pkg:   "middleware/httpmw", test: "TestSecondRequest",
		},
		{
			name: "answer-of-nobody", what: "If a handler was cut short and wrote nothing, net/http's 200 is recorded as its response.",
			edits: []edit{{"cut-short-in-silence", never()}},
			pkg:   "middleware/httpmw", test: "TestCutShort",
		},
		{
			name: "jobs-replace-each-other", what: "A waker drops the entries of an earlier job of its key: their tasks count as woken and do not run.",
			edits: []edit{{"jobs-add-up", stmt("w.jobs[k] = wakeJob{max(j.want, more.want), more.entries, max(j.marked, more.marked), j.free || more.free}")}},
			pkg:   "internal/parking", test: "TestJobsOfAKeyAddUp",
		},
		{
			name: "latest-runs-an-older-task", what: "A task that waited for its key runs without asking whether a newer one was delivered.",
			edits: []edit{{"noted-under-the-key", never()}},
			pkg:   "middleware/asynqmw", test: "TestLatestWaits",
		},
		{
			name: "latest-runs-all", what: "Each call of guard.Latest that waits runs, although a run after it has covered its work.",
			edits: []edit{{"latest-is-covered", never()}},
			pkg:   "guard", test: "TestLatest",
		},
		{
			name: "disconnect-ends-the-handler", what: "A client that disconnects cancels the handler in the middle of its effect.",
			edits: []edit{{"gone-before-the-run", value("ctx.Err() != nil")}},
			pkg:   "middleware/httpmw", test: "TestDisconnectDoesNotEndTheHandlerAndItsAnswerIsRecorded",
		},
		{
			name: "cookie-recorded", what: "A record may have Set-Cookie, and gives one client's session to another.",
			edits: []edit{{"cookie-refused", value("$ + \"-Unknown\"")}},
			pkg:   "middleware/httpmw", test: "TestOptionsAreCheckedTogether",
		},
		{
			name: "header-from-in-front-recorded", what: "A header that was set in front of Idempotent is recorded, and its old value is replayed.",
			edits: []edit{{"header-from-in-front", never()}},
			pkg:   "middleware/httpmw", test: "TestReplayedHeaders",
		},
		{
			name: "boundary-compared", what: "A form that is sent again with another boundary counts as another request.",
			edits: []edit{{"boundary-cut", always()}},
			pkg:   "middleware/httpmw", test: "TestRepeatedForm",
		},
		{
			name: "panic-forgets-the-response", what: "A handler that panics after its response leaves its key free, and the effect happens again.",
			edits: []edit{{"panic-after-a-response", value("access.Panicked{}")}},
			pkg:   "middleware/httpmw", test: "TestPanicOutcomes",
		},
		{
			name: "lossy-type-runs", what: "Work whose result cannot be replayed runs.",
			edits: []edit{{"lossy-type-refused", never()}},
			pkg:   "guard", test: "TestOnceLossyType",
		},
		{
			name: "digest-without-lengths", what: "A digest has no lengths of its parts: ab and c have the digest of a and bc.",
			edits: []edit{{"length-of-part", skip()}},
			pkg:   "idempotency", test: "TestMovedBoundaries",
		},
		{
			name: "record-taken-on-trust", what: "A record of another version is decoded as if it were of this one.",
			edits: []edit{{"record-version", never()}},
			pkg:   "idempotency", test: "TestBadRecordsDoNotDecode",
		},
	}
}
