package main

// pauses are mistakes in the rules and the scripts of pauses.
func pauses() []mistake {
	const (
		scripts, cases      = "internal/backend/backendtest", "TestMiniredis"
		memory, conformance = "internal/backend/memory", "TestConformance"
	)
	return []mistake{
		{
			name: "pause-moves-with-the-clock", what: "After the clock was set back, a pause lasts for longer than it was meant to.",
			edits: []edit{{"pause-clock", never()}},
			pkg:   "internal/backend/redis", test: "TestScriptClock",
		},
		{
			name: "paused-key-reserved", what: "A key that becomes free during a pause is reserved for a waiter.",
			edits: []edit{{"paused-not-reserved", never()}},
			pkg:   scripts, test: cases,
		},
		{
			name: "paused-shares-granted", what: "Waiting shares are granted during a pause.",
			edits: []edit{{"paused-not-served", never()}},
			pkg:   scripts, test: cases,
		},
		{
			name: "shorter-pause-counts", what: "A pause that ends sooner replaces one that ends later.",
			edits: []edit{{"later-pause-counts", always()}},
			pkg:   scripts, test: cases,
		},
		{
			name: "pause-end-wakes-no-task", what: "No parked task is woken when a pause is ended.",
			edits: []edit{{"pause-end-wakes", never()}},
			pkg:   scripts, test: cases,
		},
		{
			name: "rules-pause-end-wakes-no-task", what: "By the rules, no parked task is woken when a pause is ended.",
			edits: []edit{{"rules-pause-end-wakes", never()}},
			pkg:   memory, test: conformance,
		},
		{
			name: "rules-pause-moves-with-the-clock", what: "By the rules, a pause lasts for longer after the clock was set back.",
			edits: []edit{{"rules-pause-clock", skip()}},
			pkg:   "internal/backend/rules", test: "TestPauseClock",
		},
		{
			name: "rules-paused-key-reserved", what: "By the rules, a key that becomes free during a pause is reserved for a waiter.",
			edits: []edit{{"rules-paused-not-reserved", never()}},
			pkg:   memory, test: conformance,
		},
		{
			name: "rules-paused-shares-granted", what: "By the rules, waiting shares are granted during a pause.",
			edits: []edit{{"rules-paused-not-served", never()}},
			pkg:   memory, test: conformance,
		},
		{
			name: "rules-shorter-pause-counts", what: "By the rules, a pause that ends sooner replaces one that ends later.",
			edits: []edit{{"rules-later-pause-counts", always()}},
			pkg:   memory, test: conformance,
		},
	}
}
