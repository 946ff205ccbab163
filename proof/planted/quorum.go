package main

// quorum are mistakes in the rules of a majority of servers.
func quorum() []mistake {
	return []mistake{
		{
			name: "quorum-from-reply", what: "The lease of a majority counts from its last reply, not from before the first request.",
			edits: []edit{{"quorum-counts-from", after("reply.Sent = time.Now()")}},
			pkg:   "lockcore", test: "TestQuorumCountsFromRequest",
		},
		{
			name: "quorum-waits-forgotten", what: "What processes have said of their calls is lost on the way from the home.",
			edits: []edit{{"quorum-waits-of-home", skip()}},
			pkg:   "lockcore", test: "TestWaitingCalls",
		},
		{
			name: "quorum-half", what: "Half of the servers, rounded down, count as a majority.",
			edits: []edit{{"quorum-majority", value("func() *Backend { b := $; b.majority--; return b }()")}},
			pkg:   "lockcore", test: "TestQuorumMajorityAway",
		},
		{
			name: "quorum-no-withdrawal-in-silence", what: "A request is not withdrawn from a server that has not replied, and may have granted it.",
			edits: []edit{{"quorum-withdrawn", stmt("for i, m := range b.masters {\nif b.servers.states[i].failed == nil { m.Withdraw(r) }\n}")}},
			pkg:   "lockcore", test: "TestQuorumWithdrawsWithoutReply",
		},
		{
			name: "quorum-no-raise", what: "Servers that granted a smaller token keep it, so the next majority may grant a smaller one than this.",
			edits: []edit{{"quorum-raise", always()}},
			pkg:   "lockcore", test: "TestQuorumRaisesTokens",
		},
		{
			name: "quorum-renewed-by-one", what: "A renewal counts if one server has kept the lease.",
			edits: []edit{{"quorum-renewed", value("t.kept > 0")}},
			pkg:   "lockcore", test: "TestQuorumMinorityRenewsNothing",
		},
		{
			name: "quorum-restarted-votes", what: "The grants of a restarted server, which may have lost leases, count at once.",
			edits: []edit{{"quorum-restarted", never()}},
			pkg:   "lockcore", test: "TestNewQuorumRestart",
		},
		{
			name: "quorum-restarted-renews", what: "A renewal counts at a restarted server, whose earlier vote may still count for another request.",
			edits: []edit{{"quorum-renewal-votes", never()}},
			pkg:   "internal/backend/quorum", test: "TestRestartedServerKeepsNoLease",
		},
		{
			name: "quorum-old-token", what: "A repeated request gets the token of its first copy.",
			edits: []edit{{"quorum-token-of-repeat", value("v.greatest().Token")}},
			pkg:   "lockcore", test: "TestQuorumTokenOfRepeat",
		},
		{
			name: "quorum-release-sent-once", what: "A release is not repeated on a server that has not confirmed it.",
			edits: []edit{{"quorum-released-later", skip()}},
			pkg:   "lockcore", test: "TestQuorumReleaseReachesAll",
		},
		{
			name: "quorum-revoked-on-one", what: "A holder ignores a revocation that only one of the servers that reply knows of.",
			edits: []edit{{"quorum-revoked", skip()}},
			pkg:   "lockcore", test: "TestQuorumRevokedOnOne",
		},
		{
			name: "quorum-late-failure", what: "A request that fails late makes a server count as failed that has replied to a later one.",
			edits: []edit{{"quorum-late-failure", never()}},
			pkg:   "lockcore", test: "TestServerFailedLate",
		},
		{
			name: "quorum-home-waited-for", what: "A release waits as long as any command for the server with the remote queue.",
			edits: []edit{{"quorum-home-asked", arg(2, "nil")}},
			pkg:   "lockcore", test: "TestQuorumReleaseSilentServer",
		},
		{
			name: "quorum-home-of-the-key", what: "A process whose grant at the key's home was withdrawn waits there, although the holder is elsewhere.",
			edits: []edit{{"quorum-next-home", stmt("reply.Home = 1 + home")}},
			pkg:   "internal/backend/quorum", test: "TestWaitsWhereTheHolderIs",
		},
		{
			name: "quorum-all-asked-again", what: "A request after a withdrawal asks all servers, so it is granted in vain again.",
			edits: []edit{{"quorum-home-alone", stmt("home = r.Home-1")}},
			pkg:   "internal/backend/quorum", test: "TestWaitsWhereTheHolderIs",
		},
	}
}
