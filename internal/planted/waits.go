package main

// waits are mistakes in how calls wait for a key.
func waits() []mistake {
	return []mistake{
		{
			name: "only-messages", what: "A waiter asks again only for a message, so that a lost one parks it for ever.",
			edits: []edit{{"lockcore/ask.go", "time.Now().Add(min(b.Remaining+jitter, waitCap-jitter))", "time.Now().Add(time.Hour + b.Remaining*0 + jitter)"}},
			pkg:   "lockcore", test: "TestPeer_rueidislockLostMessage", fast: true,
		},
		{
			name: "no-lease-timer", what: "A waiter does not look again when the lease of a holder that may be dead ends.",
			edits: []edit{{"lockcore/ask.go", "min(b.Remaining+jitter, waitCap-jitter)", "waitCap-jitter"}},
			pkg:   "lockcore", test: "TestPeer_asynqDeadHolderIsFoundLate",
		},
		{
			name: "woken-cleared-after", what: "A hint that comes between an answer's writing and its reading is cleared with it.",
			edits: []edit{
				{"lockcore/ask.go", "\ta.clear()\n\targs :=", "\targs :="},
				{"lockcore/ask.go", "\ta.sent(again, err)\n\treturn reply, err", "\ta.clear()\n\ta.sent(again, err)\n\treturn reply, err"},
			},
			pkg: "lockcore", test: "TestPeer_redissonMessageBeforeTheAnswer",
		},
		{
			name: "unsubscribed-too-early", what: "The first waiter that leaves ends the subscription of all.",
			edits: []edit{{"lockcore/wake.go", "\tdelete(w.waiters, id)\n", "\tdelete(w.waiters, id)\n\tif w.running {\n\t\tw.cancel()\n\t}\n"}},
			pkg:   "lockcore", test: "TestPeer_redissonUnsubscribedTooEarly",
		},
		{
			name: "resubscribed-in-silence", what: "Nobody looks after what was said while the subscription was down.",
			edits: []edit{{"lockcore/wake.go", "\t\tfor _, ch := range w.waiters {\n\t\t\thint(ch)\n\t\t}\n", ""}},
			pkg:   "internal/sim", test: "TestResubscriptionWakes",
		},
		{
			name: "wake-up-storm", what: "A forged or repeated message makes a waiter ask at any rate.",
			edits: []edit{{"lockcore/contend.go", "a.futile > 3 {", "a.futile > 3000000 {"}},
			pkg:   "lockcore", test: "TestWakeForged",
		},
		{
			name: "place-not-given-up", what: "A waiter that gives up stays in Redis's queue, and is given a turn.",
			edits: []edit{{"lockcore/ask.go", "if a.queued || a.unsettled || a.repeated {", "if a.unsettled || a.repeated {"}},
			pkg:   "lockcore", test: "TestWaitInVain",
		},
		{
			name: "asker-fails-alone", what: "A call that asks for all in line and gives up leaves nobody who asks.",
			edits: []edit{{"lockcore/contend.go", "c.sleep(a); err != nil {\n\t\t\tc.pass(nil, a)\n", "c.sleep(a); err != nil {\n"}},
			pkg:   "lockcore", test: "TestPeer_rueidislockAskerGivesUp",
		},
	}
}
