package main

// rows are mistakes in the backend on the rows of a database.
func rows() []mistake {
	const pkg, server = "internal/backend/rows", "postgres"
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
		{
			name: "time-as-token", what: "A grant that has waited for a lock gets its time as the token.",
			edits: []edit{{"postgres-statement", sql("greatest(k.token + 1, excluded.token)", "excluded.token")}},
			pkg:   server, test: "TestTokenAfterALock",
		},
		{
			name: "release-deletes-row", what: "A release deletes the row, so its token is forgotten.",
			edits: []edit{{"postgres-free", value(`func() (bool, error) {
				freed, err := $
				_, _ = s.pool.Exec(dialing(ctx), "DELETE FROM holdfast_keys WHERE name = \x241", []byte(name))
				return freed, err
			}()`)}},
			pkg: server, test: "TestPlain",
		},
		{
			name: "late-write", what: "A write may take effect at any time after its read.",
			edits: []edit{{"postgres-write-time", value("number(w.Read + rows.WriteTime<<40)")}},
			pkg:   server, test: "TestStoppedBetweenReadAndWrite",
		},
		{
			name: "no-version", what: "An update does not compare the version that was read.",
			edits: []edit{{"postgres-statement", sql(`AND version = \x2414`, `AND \x2414::bigint <> 0`)}},
			pkg:   server, test: "TestStoppedBetweenReadAndWrite",
		},
		{
			name: "grant-not-durable", what: "Grants, renewals and records do not wait for the disk.",
			edits: []edit{{"postgres-statement", sql("THEN set_config('synchronous_commit', 'on', true) <> '' ELSE true", "THEN true ELSE true")}},
			pkg:   server, test: "TestCrash",
		},
		{
			name: "standby-warning-ignored", what: "A grant whose wait for a standby was canceled is one.",
			edits: []edit{{"postgres-warning", skip()}},
			pkg:   server, test: "TestStandby",
		},
		{
			name: "echo-to-itself", what: "The connection that listens sends the echo itself, which arrives through a pooler.",
			edits: []edit{{"postgres-echo", stmt(`_, _ = conn.Exec(timed, "SELECT pg_notify(\x241, \x242)", channel(locker), sent)`)}},
			pkg:   server, test: "TestListenBehindPooler",
		},
	}
}

// sql replaces a part of the statements. A part that does not exist changes nothing, so no test finds the
// mistake.
func sql(old, text string) operation {
	return value(`strings.ReplaceAll($, "` + old + `", "` + text + `")`)
}
