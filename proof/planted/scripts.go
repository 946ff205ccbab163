package main

// scripts are mistakes in the scripts.
func scripts() []mistake {
	return []mistake{
		{
			name: "group-blind-release", what: "A group releases the plain holds of others.",
			edits: []edit{{"grant-many-own-hold", operandAlways(1)}},
			pkg:   "proof/schedule", test: "TestSchedules",
		},
		{
			name: "group-says-granted", what: "A group reports a key as acquired that has another holder.",
			edits: []edit{{"grant-many-tells", never()}},
			pkg:   "proof/schedule", test: "TestSchedules",
		},
		{
			name: "blind-release", what: "A release does not compare the id of the hold that it ends.",
			edits: []edit{{"release-of-own-hold", operandNever(1)}},
			pkg:   "lockcore", test: "TestLeaseMaxHold",
		},
		{
			name: "blind-renewal", what: "A renewal does not compare the id of the lease that it extends.",
			edits: []edit{{"renewal-of-own-lease", operandNever(1)}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "renewal-revives", what: "A renewal revives an expired lease.",
			edits: []edit{{"renewal-of-own-lease", operandNever(2)}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "extend-or-set", what: "A renewal acquires a free key.",
			edits: []edit{{"renewal-of-own-lease", before("if not state then call('HSET', key, 's', 'h', 'h', grant_id, 'x', now + lease, 'd', lease); state, owner, ends = 'h', grant_id, now + lease end")}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "renewal-of-all-or-none", what: "A renewal ends with an error at the first key that it cannot read.",
			edits: []edit{{"renewal-of-each-key", stmt("local v = call('HMGET', key, 's', 'h', 'x', 'd', 'v')")}},
			pkg:   "lockcore", test: "TestRenewUnreadable",
		},
		{
			name: "renewal-of-earlier-hold", what: "A late renewal of an earlier hold sets its smaller token.",
			edits: []edit{{"renewal-of-latest-hold", operandAlways(1)}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "renewal-shortens", what: "A renewal shortens a lease that was extended.",
			edits: []edit{{"renewal-never-shortens", always()}},
			pkg:   "internal/backend/redis", test: "TestScriptExtend",
		},
		{
			name: "no-token-floor", what: "A token is the last one plus 1, so tokens start again after a data loss.",
			edits: []edit{{"token-floor", after("token = string.format('%.0f', greatest + 1)")}},
			pkg:   "internal/backend/redis", test: "TestScriptTokens",
		},
		{
			name: "tokens-of-a-batch-forgotten", what: "A dead holder counts as having used one token, not all of its batch.",
			edits: []edit{{"tokens-of-dead-holder", never()}},
			pkg:   "internal/backend/redis", test: "TestScriptTokens",
		},
		{
			name: "ask-not-idempotent", what: "A repeated acquire whose first reply was lost finds the key busy by its own hold.",
			edits: []edit{{"same-request", never()}},
			pkg:   "guard", test: "TestExclusiveLostReply",
		},
		{
			name: "late-copy-granted", what: "A late duplicate of an acquire acquires the key after its request has ended.",
			edits: []edit{{"late-duplicate", never()}},
			pkg:   "proof/sim", test: "TestLateCopyOfAcquire",
		},
		{
			name: "reservation-ignored", what: "A new request is granted a key that is reserved for the first waiter.",
			edits: []edit{{"key-is-taken", operand(0, "live and state ~= reserved")}},
			pkg:   "proof/sim", test: "TestReservationIsKept",
		},
		{
			name: "dead-head-of-line", what: "A release reserves the key for the first waiter although its process has ended, and so does every later release.",
			edits: []edit{{"waiter-lives", after("lives = true")}},
			pkg:   "lockcore", test: "TestPeer_redissonDeadWaiterAtTheHead",
		},
		{
			name: "leave-frees-another's-turn", what: "A waiter that gives up ends the reservation of another one.",
			edits: []edit{{"leaves-with-turn", value("k.state ~= reserved and ($)")}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "turn-not-passed-on", what: "A waiter that gives up keeps its reservation.",
			edits: []edit{{"turn-passed-on", skip()}},
			pkg:   "lockcore", test: "TestWaitPassesTurnOn",
		},
		{
			name: "complete-without-check", what: "The completion of a stale holder ends the hold of its successor.",
			edits: []edit{{"completion-of-own-hold", operandNever(1)}},
			pkg:   "lockcore", test: "TestLeaseLateCompletion",
		},
		{
			name: "complete-notifies-nobody", what: "The waiters are not notified of a record.",
			edits: []edit{{"record-told", skip()}},
			pkg:   "lockcore", test: "TestPeer_rueidislockRecordWithoutNotification",
		},
		{
			name: "abandoned-forgotten", what: "A takeover of an abandoned key is not reported.",
			edits: []edit{{"grant-reply", after("reply[4] = 0")}},
			pkg:   "guard", test: "TestOnceAbandoned",
		},
		{
			name: "abandoned-told-once", what: "The first takeover of an abandoned key clears the mark, even if it never ran.",
			edits: []edit{{"abandoned-noted", never()}},
			pkg:   "lockcore", test: "TestPeer_asynqOrphanForgotten",
		},
		{
			name: "at-most-once-takes-over", what: "At most once takes an abandoned key over.",
			edits: []edit{{"abandoned-refused", never()}},
			pkg:   "guard", test: "TestOnceAbandoned",
		},
		{
			name: "refusal-renews-nothing", what: "The refusal of an abandoned key does not renew its mark.",
			edits: []edit{{"refusal-renews", never()}},
			pkg:   "lockcore", test: "TestAtMostOnceRemembersFor100Days",
		},
		{
			name: "revoke-frees", what: "Revoke frees the key while the handler runs.",
			edits: []edit{{"revoked", stmt("call('HDEL', hash, 's', 'h', 'o', 'x', 'd')")}},
			pkg:   "lockcore", test: "TestRevoke",
		},
		{
			name: "force-blind", what: "ForceClear ends whatever hold the key has, not the one that was seen.",
			edits: []edit{{"forced-hold", never()}},
			pkg:   "lockcore", test: "TestForceClearChanged",
		},
		{
			name: "force-impatient", what: "ForceClear does not wait for the renewal of a living holder.",
			edits: []edit{{"forced-when-silent", never()}},
			pkg:   "lockcore", test: "TestForceClearAlive",
		},
		{
			name: "force-tells-nobody", what: "A waiter gets a key that ForceClear has freed only after up to 2 s.",
			edits: []edit{{"forced-told", skip()}},
			pkg:   "lockcore", test: "TestForceClearEvenAlive",
		},
		{
			name: "renewal-of-extended-lease-unseen", what: "ForceClear takes a living holder for dead whose renewals do not move the end of its extended lease.",
			edits: []edit{{"renewal-always-seen", never()}},
			pkg:   "lockcore", test: "TestForceClearAlive",
		},
		{
			name: "queue-for-ever", what: "The queue of a key has no TTL.",
			edits: []edit{{"queue-ttl", skip()}},
			pkg:   "lockcore", test: "TestPeer_redissonKeysThatStay",
		},
		{
			name: "memory-ends-with-hash", what: "An ended id is remembered only for the TTL that the hash has.",
			edits: []edit{{"remembered-for-a-minute", skip()}},
			pkg:   "internal/backend/redis", test: "TestScriptRemembersLongEnough",
		},
		{
			name: "queue-outlives-hash", what: "A reserved key keeps the TTL of a free one, so its queue outlives it.",
			edits: []edit{{"hash-outlives-queue", skip()}},
			pkg:   "internal/backend/redis", test: "TestScriptHashOutlivesQueue",
		},
		{
			name: "record-outlives-its-end", what: "A withdrawn request extends the record that it found.",
			edits: []edit{{"record-keeps-its-end", never()}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "dead-queue-in-one-script", what: "One release searches for a live waiter behind any number of dead ones.",
			edits: []edit{{"dead-members-per-script", after("most = 1000000")}},
			pkg:   "internal/backend/redis", test: "TestScriptDeadQueue",
		},
		{
			name: "parked-forgotten", what: "A release deletes a key with parked entries, so that no release wakes them.",
			edits: []edit{{"parked-remembered", operandAlways(6)}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "parked-again-removed", what: "A waker removes the entry of a task that was parked again after the waker had looked it up.",
			edits: []edit{{"parked-again", value("since")}},
			pkg:   "middleware/asynqmw", test: "TestParkingRemovesNoNewEntry",
		},
		{
			name: "parked-at-the-end", what: "An entry that is parked again moves behind the others.",
			edits: []edit{{"parked-in-its-place", stmt("call('ZADD', parked, now, entry)")}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "triggers-out-of-order", what: "The number of a trigger is the time alone, so triggers of one microsecond have the same one.",
			edits: []edit{{"triggers-in-order", after("number = now")}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "older-trigger-runs", what: "A trigger counts as the newest although a newer one was noted.",
			edits: []edit{{"newest-of-all", value("succeeded >= number")}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "success-forgotten", what: "The success of a newer trigger is not recorded, so an older one runs after it.",
			edits: []edit{{"success-is-remembered", skip()}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "ended-trigger-forgotten", what: "A trigger that has ended is forgotten, and its task is the newest if it is delivered again.",
			edits: []edit{{"end-is-remembered", stmt("call('ZREM', triggers, entry)")}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "ended-trigger-begins-again", what: "A retry of a trigger that has ended becomes a new trigger.",
			edits: []edit{{"ended-stays-ended", never()}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "another-trigger-ends", what: "A late duplicate of the end of a trigger ends another one of the same task.",
			edits: []edit{{"trigger-of-this-task", value("flag == '1' and score(entry)")}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "open-triggers-forgotten", what: "A success forgets the older triggers after an hour, which then run after it.",
			edits: []edit{{"open-triggers-are-kept", stmt("call('PEXPIRE', triggers, hour / 1000)")}},
			pkg:   "internal/backend/memory", test: "TestDifferentialFixed",
		},
		{
			name: "newer-hold-revoked", what: "A revocation for a newer hold ends that one too.",
			edits: []edit{{"revoke-older", stmt("if before > 0 then is_held = k.live and k.state == held end")}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "newer-than-seen-revoked", what: "A revocation of the hold that an operator has seen ends a newer one.",
			edits: []edit{{"revoke-seen", stmt("local is_held = k.live and (k.state == held or k.state == shared)")}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "adopted-twice", what: "Any process can adopt a hold, also one that was adopted.",
			edits: []edit{{"adopt-own-hold", operandNever(2)}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "adopted-id-forgotten", what: "A late duplicate of an acquire is granted after its hold was adopted and released.",
			edits: []edit{{"adopted-id-remembered", skip()}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "interim-of-another-run", what: "A later run of a once key gets the interim answer of the run before.",
			edits: []edit{{"interim-of-own-run", operandNever(2)}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "interim-untold", what: "An interim answer reaches a waiter of another process only after 2 s.",
			edits: []edit{{"answer-told", skip()}},
			pkg:   "internal/backend/backendtest", test: "TestMiniredis",
		},
		{
			name: "clock-set-back", what: "If the server clock is set back, a lease lasts longer by that time.",
			edits: []edit{{"clock-sane", always()}},
			pkg:   "internal/backend/redis", test: "TestScriptClock",
		},
	}
}
