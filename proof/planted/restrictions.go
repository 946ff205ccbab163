package main

// restrictions are mistakes in the rules and the scripts of restrictions, and in the engine's use of
// them.
func restrictions() []mistake {
	const (
		scripts, cases      = "internal/backend/backendtest", "TestMiniredis"
		memory, conformance = "internal/backend/memory", "TestConformance"
		engine, load        = "lockcore", "TestRestrict"
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
			edits: []edit{{"restricted-rate", stmt("return r.interval, r.burst, tonumber(cost)")}},
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
			name: "rules-restriction-without-limit", what: "By the rules, a restriction does not change the limit of a request.",
			edits: []edit{{"rules-restricted-limit", stmt("return s.Limit")}},
			pkg:   memory, test: conformance,
		},
		{
			name: "rules-restriction-raises-rate", what: "By the rules, a restriction replaces a slower rate of a request.",
			edits: []edit{{"rules-restricted-rate", always()}},
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
		{
			name: "restricted-share-handed-on", what: "A process hands on a share of a key that is restricted to a rate.",
			edits: []edit{{"permit-with-rate", operandAlways(1)}},
			pkg:   engine, test: load,
		},
	}
}
