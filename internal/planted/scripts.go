package main

// scripts are mistakes in what Redis runs.
func scripts() []mistake {
	return []mistake{
		{
			name: "blind-release", what: "A release does not look at whose hold it ends.",
			edits: []edit{{"lockcore/scripts/release.lua", "if v[1] ~= 'h' or v[2] ~= hold then", "if v[1] ~= 'h' then"}},
			pkg:   "lockcore", test: "TestLeaseMaxHold", fast: true,
		},
		{
			name: "blind-renewal", what: "A renewal does not look at whose lease it keeps.",
			edits: []edit{{"lockcore/scripts/renew.lua", "if v[1] ~= 'h' or v[2] ~= hold or x <= now then", "if v[1] ~= 'h' or x <= now then"}},
			pkg:   "lockcore", test: "TestScriptRenew",
		},
		{
			name: "renewal-revives", what: "A renewal revives a lease that has run out.",
			edits: []edit{{"lockcore/scripts/renew.lua", "if v[1] ~= 'h' or v[2] ~= hold or x <= now then", "if v[1] ~= 'h' or v[2] ~= hold then"}},
			pkg:   "lockcore", test: "TestScriptRenew",
		},
		{
			name: "extend-or-set", what: "A renewal takes a key that is free.",
			edits: []edit{{
				"lockcore/scripts/renew.lua", "  if v[1] ~= 'h' or v[2] ~= hold or x <= now then\n",
				"  if not v[1] then\n    call('HSET', key, 's', 'h', 'h', hold, 'x', now + lease, 'd', lease)\n    kept[i] = 1\n  elseif v[1] ~= 'h' or v[2] ~= hold or x <= now then\n",
			}},
			pkg: "lockcore", test: "TestScriptRenew",
		},
		{
			name: "renewal-shortens", what: "A renewal makes a lease shorter that was extended.",
			edits: []edit{{"lockcore/scripts/renew.lua", "if now + lease > x then call(", "if true then call("}},
			pkg:   "lockcore", test: "TestScriptExtend",
		},
		{
			name: "no-token-floor", what: "A token is the last one and 1, so that they begin anew when the data is gone.",
			edits: []edit{{"lockcore/scripts/grant.lua", "math.max(f + 1, now)", "f + 1"}},
			pkg:   "lockcore", test: "TestScriptTokens", fast: true,
		},
		{
			name: "tokens-of-a-streak-forgotten", what: "A holder that died is taken to have used one token, not all of its streak.",
			edits: []edit{{"lockcore/scripts/acquire.lua", "if s == 'h' then f = math.max(f, t + block - 1) end\n", ""}},
			pkg:   "lockcore", test: "TestScriptTokens",
		},
		{
			name: "ask-not-idempotent", what: "Who sends an acquire again, for want of an answer, is told that the key is busy: by itself.",
			edits: []edit{{"lockcore/scripts/acquire.lua", "if s == 'h' and h == ask then", "if false then"}},
			pkg:   "guard", test: "TestExclusiveLostAnswer",
		},
		{
			name: "late-copy-granted", what: "A copy of an acquire that comes after its end takes the key for nobody.",
			edits: []edit{{"lockcore/scripts/acquire.lua", "if v[9] and string.find(v[9], ask, 1, true) then return {5} end", ""}},
			pkg:   "internal/sim", test: "TestLateCopyOfAcquire",
		},
		{
			name: "reservation-ignored", what: "A newcomer takes the key that is reserved for the first in line.",
			edits: []edit{{"lockcore/scripts/acquire.lua", "if live and not (s == 'r' and h == ask) then", "if live and s ~= 'r' then"}},
			pkg:   "internal/sim", test: "TestReservationIsKept",
		},
		{
			name: "dead-head-of-line", what: "A turn is reserved for the first in line although its process is gone, and once more for that one at every release.",
			edits: []edit{{"lockcore/scripts/pass.lua", "'w' .. ask) > 0 or count == '0' then", "'w' .. ask) >= 0 or count == '0' then"}},
			pkg:   "lockcore", test: "TestPeer_redissonDeadWaiterAtTheHead",
		},
		{
			name: "leave-frees-another's-turn", what: "A waiter that gives up frees the turn that is reserved for another.",
			edits: []edit{{"lockcore/scripts/leave.lua", "if k.h ~= ask or (k.s ~= 'h' and k.s ~= 'r') then return {0} end", "if k.s ~= 'r' and (k.h ~= ask or k.s ~= 'h') then return {0} end"}},
			pkg:   "lockcore", test: "TestScriptLeave",
		},
		{
			name: "turn-not-passed-on", what: "A waiter that gives up keeps the turn that it was given.",
			edits: []edit{{"lockcore/scripts/leave.lua", "pass_on(ARGV[5], ARGV[6], ARGV[7])\n", ""}},
			pkg:   "lockcore", test: "TestWaitPassesTurnOn",
		},
		{
			name: "complete-without-check", what: "A stale holder's completion replaces what its successor does.",
			edits: []edit{{"lockcore/scripts/complete.lua", "if k.s ~= 'h' or k.h ~= ARGV[1] then", "if k.s ~= 'h' then"}},
			pkg:   "lockcore", test: "TestLeaseLateCompletion", fast: true,
		},
		{
			name: "complete-wakes-nobody", what: "A record is not told to who waits for it.",
			edits: []edit{{"lockcore/scripts/complete.lua", "  call('PUBLISH', ARGV[5] .. string.sub(w, 1, 26), 'w' .. string.sub(w, 27))\n", ""}},
			pkg:   "lockcore", test: "TestPeer_rueidislockRecordWithoutAWord",
		},
		{
			name: "abandoned-forgotten", what: "Who takes an abandoned key over is not told.",
			edits: []edit{{"lockcore/scripts/acquire.lua", "n and n + 1, a or s == 'h', ask", "n and n + 1, false, ask"}},
			pkg:   "guard", test: "TestOnceAbandoned",
		},
		{
			name: "abandoned-told-once", what: "That a key was abandoned is forgotten with the first one that takes it, even if that never ran.",
			edits: []edit{{"lockcore/scripts/acquire.lua", "  if not a then call('HSET', KEYS[1], 'a', '1') end\n", ""}},
			pkg:   "lockcore", test: "TestPeer_asynqOrphanForgotten",
		},
		{
			name: "at-most-once-takes-over", what: "At most once takes an abandoned key over.",
			edits: []edit{{"lockcore/scripts/acquire.lua", "if (a or s == 'h') and mode == 'most' then", "if false then"}},
			pkg:   "guard", test: "TestOnceAbandoned", fast: true,
		},
		{
			name: "revoke-frees", what: "Revoke gives the key to others under the running handler.",
			edits: []edit{{"lockcore/scripts/revoke.lua", "call('HSET', KEYS[1], 'v', '1')", "call('HDEL', KEYS[1], 's', 'h', 'o', 'x', 'd')"}},
			pkg:   "lockcore", test: "TestRevoke",
		},
		{
			name: "queue-for-ever", what: "The queue of a key has no TTL.",
			edits: []edit{{"lockcore/scripts/grant.lua", "  call('PEXPIRE', KEYS[2], keep)\n", ""}},
			pkg:   "lockcore", test: "TestPeer_redissonKeysThatStay",
		},
		{
			name: "clock-set-back", what: "A server clock that was set back keeps a lease for as long.",
			edits: []edit{{"lockcore/scripts/lease.lua", "if x - now <= d then return x end", "if true then return x end"}},
			pkg:   "lockcore", test: "TestScriptClock",
		},
	}
}
