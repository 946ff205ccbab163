package main

// rows are mistakes in the backend on the rows of a database.
func rows() []mistake {
	const pkg = "internal/backend/rows"
	return []mistake{
		{
			name: "row-token-forgotten", what: "If the clock is set back, a free row gets a smaller token than one that was used.",
			edits: []edit{{"rows-token-remembered", skip()}},
			pkg:   pkg, test: "TestTokensGrow",
		},
		{
			name: "row-token-not-kept", what: "A release does not keep the token in the row.",
			edits: []edit{{"rows-token-kept", skip()}},
			pkg:   pkg, test: "TestTokensGrow",
		},
		{
			name: "row-not-read-again", what: "A call whose row was changed by another client fails.",
			edits: []edit{{"rows-read-again", never()}},
			pkg:   pkg, test: "TestDifferential",
		},
		{
			name: "row-call-not-repeated", what: "Revoke fails if its reply is lost.",
			edits: []edit{{"rows-sent-again", always()}},
			pkg:   pkg, test: "TestLostEnds",
		},
		{
			name: "held-row-purged", what: "Purge deletes rows that are not free.",
			edits: []edit{{"rows-purged", value("true")}},
			pkg:   pkg, test: "TestPurge",
		},
	}
}
