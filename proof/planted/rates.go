package main

// rates are mistakes in the rules and the scripts of rates, and in the engine's use of them.
func rates() []mistake {
	const (
		schedules, random    = "proof/schedule", "TestSchedules"
		scripts, cases       = "internal/backend/backendtest", "TestMiniredis"
		memory, conformance  = "internal/backend/memory", "TestConformance"
		engine, differential = "lockcore", "TestDifferentialFixed"
	)
	return []mistake{
		{
			name: "serve-spends", what: "The first request of the queue pays when it is told, and again when it begins.",
			edits: []edit{{"rate-told", after("if at <= k.now then spend(flow, k, rates_of(text, k), 1) end")}},
			pkg:   scripts, test: cases,
		},
		{
			name: "rate-moves-with-the-clock", what: "After the clock was set back, the time of the bucket is shortened, but not written.",
			edits: []edit{{"rate-clock-written", skip()}},
			pkg:   schedules, test: random,
		},
		{
			name: "rate-waits-for-the-clock", what: "After the clock was set back, the calls wait until it is past the time of the bucket.",
			edits: []edit{{"rate-clock", never()}},
			pkg:   schedules, test: random,
		},
		{
			name: "rate-for-nothing", what: "A call that begins takes nothing from the rate.",
			edits: []edit{{"rate-spent", skip()}},
			pkg:   scripts, test: cases,
		},
		{
			name: "rate-rounded-down", what: "The time in which a cost returns is rounded down, so a Per may have a call more.",
			edits: []edit{{"rate-rounded", stmt("local function refill(cost, interval) return math.floor(cost * interval) end")}},
			pkg:   schedules, test: random,
		},
		{
			name: "rate-forgotten-early", what: "The rate of a key has no TTL.",
			edits: []edit{{"rate-ttl", skip()}},
			pkg:   schedules, test: random,
		},
		{
			name: "rate-overtakes", what: "A call that is due overtakes the processes that wait.",
			edits: []edit{{"rate-in-turn", value("not taken and due(rates) > k.now")}},
			pkg:   scripts, test: cases,
		},
		{
			name: "rate-batch-too-large", what: "A request admits one call more than fit.",
			edits: []edit{{"rate-batch", after("count = math.min(calls, count + 1)")}},
			pkg:   scripts, test: cases,
		},
		{
			name: "rate-batch-beside-waiters", what: "A request admits all calls of its process although other processes wait.",
			edits: []edit{{"rate-takes-turns", skip()}},
			pkg:   schedules, test: random,
		},
		{
			name: "rate-permit-spends-twice", what: "A repeat of a request for a permit takes its cost again.",
			edits: []edit{{"rate-permit-once", operandAlways(1)}},
			pkg:   scripts, test: cases,
		},
		{
			name: "rate-dead-head-stays", what: "A dead process that is the first of the queue keeps all others out for 5 s.",
			edits: []edit{{"rate-dead-head", value("($) and false")}},
			pkg:   scripts, test: cases,
		},
		{
			name: "rate-silent-head-stays", what: "A silent process that is the first of the queue keeps all others out.",
			edits: []edit{{"rate-silent-head", never()}},
			pkg:   schedules, test: random,
		},
		{
			name: "rate-place-lost", what: "A call that another one keeps from the key for 5 s loses its place.",
			edits: []edit{{"rate-seen-again", skip()}},
			pkg:   scripts, test: cases,
		},
		{
			name: "rate-stuck-behind-the-dead", what: "Behind an expired hold, dead processes in the queue keep out all calls with a rate.",
			edits: []edit{{"rate-behind-expired", before("if k.state ~= '' and k.state ~= shared then return end")}},
			pkg:   scripts, test: cases,
		},
		{
			name: "rate-turn-too-early", what: "The time until the turn of a call does not count the costs before it.",
			edits: []edit{{"rate-costs-before", skip()}},
			pkg:   scripts, test: cases,
		},
		{
			name: "rules-serve-spends", what: "By the rules, the first request of the queue pays when it is told, and again when it begins.",
			edits: []edit{{"rules-rate-told", after("if due <= e.Now {\nk.Flow.spend(rs, 1, e.Now)\n}")}},
			pkg:   memory, test: conformance,
		},
		{
			name: "rules-rate-waits-for-the-clock", what: "By the rules, calls wait for the clock after it was set back.",
			edits: []edit{{"rules-rate-clock", skip()}},
			pkg:   schedules, test: random,
		},
		{
			name: "rules-rate-for-nothing", what: "By the rules, a call that begins takes nothing from the rate.",
			edits: []edit{{"rules-rate-spent", skip()}},
			pkg:   engine, test: "TestThrottleWindows",
		},
		{
			name: "rules-rate-rounded-down", what: "By the rules, the time in which a cost returns is rounded down.",
			edits: []edit{{"rules-rate-rounded", value("Span(math.Floor(float64(cost) * interval(r)))")}},
			pkg:   schedules, test: random,
		},
		{
			name: "rules-rate-overtakes", what: "By the rules, a call that is due overtakes the processes that wait.",
			edits: []edit{{"rules-rate-in-turn", value("k.live(e.Now) && k.State != Shared")}},
			pkg:   memory, test: conformance,
		},
		{
			name: "rules-rate-batch-too-large", what: "By the rules, a request admits all calls of its process.",
			edits: []edit{{"rules-rate-batch", before("reply.Calls = max(r.Calls, 1)")}},
			pkg:   engine, test: "TestThrottleWindows",
		},
		{
			name: "rules-rate-dead-head-stays", what: "By the rules, a dead process that is the first of the queue keeps all others out for 5 s.",
			edits: []edit{{"rules-rate-dead-head", never()}},
			pkg:   memory, test: conformance,
		},
		{
			name: "rules-rate-place-lost", what: "By the rules, a call that another one keeps from the key for 5 s loses its place.",
			edits: []edit{{"rules-rate-seen-again", never()}},
			pkg:   memory, test: conformance,
		},
		{
			name: "rules-rate-stuck-behind-the-dead", what: "By the rules, behind an expired hold dead processes keep out all calls with a rate.",
			edits: []edit{{"rules-rate-behind-expired", before("if k.State != Free && k.State != Shared {\nreturn nil\n}")}},
			pkg:   memory, test: conformance,
		},
		{
			name: "rules-rate-turn-too-early", what: "By the rules, the time until the turn of a call does not count the costs before it.",
			edits: []edit{{"rules-rate-costs-before", never()}},
			pkg:   memory, test: conformance,
		},
		{
			name: "rate-permit-handed-off", what: "A permit that a rate let begin is handed to the next call, which then takes nothing from the rate.",
			edits: []edit{{"permit-with-rate", operandAlways(0)}},
			pkg:   engine, test: "TestLimitWithRate",
		},
		{
			name: "rate-ghost-request", what: "A call that was admitted after a lost command does not withdraw it, so it is admitted once more when it arrives.",
			edits: []edit{{"admitted-request-ends", stmt("req.unsubscribe()")}},
			pkg:   engine, test: "TestThrottleLateDuplicate",
		},
		{
			name: "rate-late-turn-waits", what: "A call whose turn is after its wait waits nevertheless.",
			edits: []edit{{"late-turn", value("false && v.busy.Exact")}},
			pkg:   engine, test: "TestThrottleRefusesAtOnce",
		},
	}
}
