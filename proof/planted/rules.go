package main

// rules are mistakes in the specification. The comparison with the scripts finds them.
func rules() []mistake {
	const pkg, test = "internal/backend/memory", "TestDifferentialFixed"
	return []mistake{
		{
			name: "rules-no-token-floor", what: "By the rules, a token does not follow the clock.",
			edits: []edit{{"rules-token-floor", after("k.Token = used + 1")}},
			pkg:   pkg, test: test,
		},
		{
			name: "rules-late-duplicate-granted", what: "By the rules, a late duplicate of an acquire is granted after its end.",
			edits: []edit{{"rules-late-duplicate", never()}},
			pkg:   pkg, test: test,
		},
		{
			name: "rules-renewal-of-earlier-hold", what: "By the rules, a late renewal of an earlier hold sets its smaller token.",
			edits: []edit{{"rules-renewal-of-latest-hold", operandAlways(1)}},
			pkg:   pkg, test: "TestConformance",
		},
		{
			name: "rules-renewal-revives", what: "By the rules, a renewal revives an expired lease.",
			edits: []edit{{"rules-live-lease", never()}},
			pkg:   pkg, test: test,
		},
		{
			name: "rules-adopted-twice", what: "By the rules, any request adopts a hold.",
			edits: []edit{{"rules-adopt-own-hold", operandNever(2)}},
			pkg:   pkg, test: test,
		},
		{
			name: "rules-dead-waiter", what: "By the rules, a key is reserved for a process that cannot be notified.",
			edits: []edit{{"rules-waiter-lives", always()}},
			pkg:   pkg, test: test,
		},
		{
			name: "rules-record-outlives-its-end", what: "By the rules, a withdrawn request extends a record.",
			edits: []edit{{"rules-record-keeps-its-end", never()}},
			pkg:   pkg, test: test,
		},
		{
			name: "rules-parked-forgotten", what: "By the rules, a released key soon forgets that it has parked entries.",
			edits: []edit{{"rules-parked-kept", skip()}},
			pkg:   pkg, test: test,
		},
		{
			name: "rules-triggers-out-of-order", what: "By the rules, the number of a trigger is the time alone.",
			edits: []edit{{"rules-triggers-in-order", after("number = now")}},
			pkg:   pkg, test: test,
		},
		{
			name: "rules-another-trigger-ends", what: "By the rules, a late duplicate of the end of a trigger ends another one.",
			edits: []edit{{"rules-trigger-of-this-task", value("r.Ends && k.scoreOf(r.Entry) > 0")}},
			pkg:   pkg, test: test,
		},
		{
			name: "rules-newer-hold-revoked", what: "By the rules, a revocation for a newer hold ends that one too.",
			edits: []edit{{"rules-revoke-older", operandNever(2)}},
			pkg:   pkg, test: test,
		},
		{
			name: "rules-newer-than-seen-revoked", what: "By the rules, a revocation of the hold that an operator has seen ends a newer one.",
			edits: []edit{{"rules-revoke-seen", stmt("newer := false")}},
			pkg:   pkg, test: "TestConformance",
		},
	}
}
