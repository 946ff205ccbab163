package main

// restrictions are mistakes in the rules and the scripts of restrictions.
func restrictions() []mistake {
	const (
		scripts, cases      = "internal/backend/backendtest", "TestMiniredis"
		memory, conformance = "internal/backend/memory", "TestConformance"
	)
	return []mistake{
		{
			name: "restriction-without-limit", what: "A restriction does not change the limit of a request.",
			edits: []edit{{"restricted-limit", stmt("return limit")}},
			pkg:   scripts, test: cases,
		},
		{
			name: "restriction-starves-heavy", what: "A share that is heavier than the restriction waits until the restriction ends.",
			edits: []edit{{"restricted-limit", stmt("return r and r.limit > 0 and math.min(limit, r.limit) or limit")}},
			pkg:   scripts, test: cases,
		},
		{
			name: "restriction-raises-rate", what: "A restriction replaces a slower rate of a request.",
			edits: []edit{{"restricted-rate", stmt("rates[1] = {bucket = k.buckets.y, interval = r.interval, burst = r.burst, cost = tonumber(cost or 1)}")}},
			pkg:   scripts, test: cases,
		},
		{
			name: "restriction-spends-own", what: "The cost of a call at the rate of a restriction goes to the key's own bucket.",
			edits: []edit{{"restricted-rate", after("rates[#rates].bucket = k.buckets.b")}},
			pkg:   scripts, test: cases,
		},
		{
			name: "restriction-keeps-bucket", what: "A second restriction keeps the bucket of the first one.",
			edits: []edit{{"restriction-replaced", stmt("call('HDEL', flow, 'z')")}},
			pkg:   scripts, test: cases,
		},
		{
			name: "restriction-never-ends", what: "A restriction counts after its end.",
			edits: []edit{{"restriction-ends", always()}},
			pkg:   memory, test: "TestDifferentialFixed",
		},
		{
			name: "restriction-moves-with-the-clock", what: "After the clock was set back, a restriction lasts for longer than it was meant to.",
			edits: []edit{{"restriction-clock", never()}},
			pkg:   "internal/backend/redis", test: "TestScriptRestrictionClock",
		},
		{
			name: "restriction-forgotten", what: "A restriction has no TTL.",
			edits: []edit{{"restriction-ttl", skip()}},
			pkg:   memory, test: "TestDifferentialFixed",
		},
		{
			name: "restriction-wakes-no-task", what: "No parked task is woken when a restriction is ended.",
			edits: []edit{{"restriction-wakes", never()}},
			pkg:   scripts, test: cases,
		},
		{
			name: "rules-restriction-wakes-no-task", what: "By the rules, no parked task is woken when a restriction is ended.",
			edits: []edit{{"rules-restriction-wakes", skip()}},
			pkg:   memory, test: conformance,
		},
		{
			name: "rules-restriction-without-limit", what: "By the rules, a restriction does not change the limit of a request.",
			edits: []edit{{"rules-restricted-limit", stmt("return s.Limit")}},
			pkg:   memory, test: conformance,
		},
		{
			name: "rules-restriction-raises-rate", what: "By the rules, a restriction replaces a slower rate of a request.",
			edits: []edit{{"rules-restricted-rate", stmt("rs = rates{1: r.Rate}")}},
			pkg:   memory, test: conformance,
		},
		{
			name: "rules-restriction-spends-own", what: "By the rules, the key's own bucket fills at the rate of a restriction.",
			edits: []edit{{"rules-restricted-rate", after("rs[0].N, rs[0].Per = r.Rate.N, r.Rate.Per")}},
			pkg:   memory, test: conformance,
		},
		{
			name: "rules-restriction-keeps-bucket", what: "By the rules, a second restriction keeps the bucket of the first one.",
			edits: []edit{{"rules-restriction-replaced", stmt("f.Restriction = Restriction{}")}},
			pkg:   memory, test: conformance,
		},
		{
			name: "rules-restriction-never-ends", what: "By the rules, a restriction counts after its end.",
			edits: []edit{{"rules-restriction-ends", operandNever(0)}},
			pkg:   memory, test: conformance,
		},
		{
			name: "rules-restriction-moves-with-the-clock", what: "By the rules, a restriction lasts for longer after the clock was set back.",
			edits: []edit{{"rules-restriction-clock", skip()}},
			pkg:   "internal/backend/rules", test: "TestRestrictionClock",
		},
	}
}
