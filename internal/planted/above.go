package main

// above are mistakes in the packages on top of lockcore.
func above() []mistake {
	return []mistake{
		{
			name: "other-payload-replayed", what: "The same key with another payload gets the record of the first.",
			edits: []edit{
				{"lockcore/scripts/done.lua", "  if other then return {3, 1} end\n", ""},
				{"lockcore/call.go", "if other(tag, c.tag) {", "if false {"},
			},
			pkg: "guard", test: "TestOnceFingerprint", fast: true,
		},
		{
			name: "failure-recorded", what: "A run that failed is recorded, and its retry is a no-op.",
			edits: []edit{{"guard/once.go", "\tdefault:\n\t\treturn lease.Release(ctx)\n\t}\n\tb, encErr", "\tdefault:\n\t\trec.Data = []byte(clip((*err).Error()))\n\t}\n\tb, encErr"}},
			pkg:   "guard", test: "TestOnceFailure",
		},
		{
			name: "refusal-recorded", what: "An inner guard that did not let the handler run makes the outer one record that it failed.",
			edits: []edit{{"middleware/asynqmw/busy.go", "return guard.NoEffect(c)", "return c"}},
			pkg:   "middleware/asynqmw", test: "TestOnceAroundBusyExclusive",
		},
		{
			name: "conflict-uses-a-retry", what: "A task whose key is busy uses up a retry of asynq.",
			edits: []edit{{"middleware/asynqmw/configure.go", "return !busy && isFailure(err)", "_ = busy\n\t\treturn isFailure(err)"}},
			pkg:   "middleware/asynqmw", test: "TestBusyRetryLater",
		},
		{
			name: "once-without-type", what: "Tasks of two types with the same key share a record.",
			edits: []edit{{"middleware/asynqmw/once.go", "OnceKey(t.Type(), key), g,", "key.String(), g,"}},
			pkg:   "middleware/asynqmw", test: "TestOnceReplay",
		},
		{
			name: "tick-by-the-clock", what: "A tick is named by the time at which it runs, not by that of the schedule.",
			edits: []edit{{"middleware/cronmw/run.go", "Time: at.Round(0).In(s.zone)", "Time: s.now().Truncate(time.Second).In(s.zone)"}},
			pkg:   "middleware/cronmw", test: "TestAddToOvertaken", fast: true,
		},
		{
			name: "late-goroutine-next-tick", what: "A cron goroutine that starts late takes the tick that comes next.",
			edits: []edit{{"middleware/cronmw/addto.go", "\tat, ok := j.ticks.take()\n", "\tat, ok := j.ticks.take()\n\tat = j.ticks.Schedule.Next(time.Now())\n"}},
			pkg:   "middleware/cronmw", test: "TestAddToLateGoroutine",
		},
		{
			name: "scope-not-in-key", what: "Two tenants with the same key get each other's answers.",
			edits: []edit{{"middleware/httpmw/key.go", `"http", scope, method, path, client)`, `"http", method, path, client)`}},
			pkg:   "middleware/httpmw", test: "TestKeysNeverMeet", fast: true,
		},
		{
			name: "body-not-compared", what: "The same key with another body is taken for the same request.",
			edits: []edit{{"middleware/httpmw/fingerprint.go", `[]byte(r.Header.Get("Content-Type")), body)`, `[]byte(r.Header.Get("Content-Type")))`}},
			pkg:   "middleware/httpmw", test: "TestSecondRequest",
		},
		{
			name: "answer-of-nobody", what: "A handler that was cut short and wrote nothing has net/http's 200 recorded as its answer.",
			edits: []edit{{"middleware/httpmw/idempotent.go", "case own.silent && (ctx.Err() != nil || run.cut.Load()):", "case false:"}},
			pkg:   "middleware/httpmw", test: "TestCutShort",
		},
		{
			name: "disconnect-ends-the-handler", what: "A client that goes away ends the handler in the middle of its effect.",
			edits: []edit{{"middleware/httpmw/idempotent.go", "if !m.CancelOnDisconnect && !stay() {", "if ctx.Err() != nil {"}},
			pkg:   "middleware/httpmw", test: "TestDisconnectDoesNotEndTheHandlerAndItsAnswerIsRecorded",
		},
		{
			name: "cookie-recorded", what: "A record may have Set-Cookie, and gives one client's session to another.",
			edits: []edit{{"middleware/httpmw/header.go", `"Set-Cookie", "Set-Cookie2",`, `"Set-Cookie2",`}},
			pkg:   "middleware/httpmw", test: "TestOptionsAreCheckedTogether",
		},
		{
			name: "digest-without-lengths", what: "The parts of a digest run into each other: ab and c make the key of a and bc.",
			edits: []edit{
				{"idempotency/digest.go", "\t\tb = binary.BigEndian.AppendUint64(b, uint64(len(p)))\n\t\tb = append(b, p...)\n\t}\n\treturn", "\t\tb = append(b, p...)\n\t}\n\t_ = binary.BigEndian\n\treturn"},
			},
			pkg: "idempotency", test: "TestMovedBoundaries",
		},
		{
			name: "record-taken-on-trust", what: "A record of another version is decoded as if it were of this one.",
			edits: []edit{{"idempotency/record.go", "if b[0] != version1 {", "if false {"}},
			pkg:   "idempotency", test: "TestBadRecordsDoNotDecode",
		},
	}
}
