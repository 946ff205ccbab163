// Package quorum is a model of the protocol of internal/backend/quorum: three servers, two processes
// and one key. A search visits every state that its bounds permit, so it needs no seed.
//
//	go -C proof test ./quorum -v
//
// # Model
//
// Time is counted in ticks. A server counts a lease from the arrival of the request, and a process its
// validity from before the first send, both to the last tick. Each message may arrive at any later
// time, or never, and a process counts replies at any time within its validity. Requests and ends may
// arrive several times. A process requests the key once or twice, renews it, hands it off, releases
// it, gives up or dies. One server restarts with the data of any earlier time, and its votes count
// again if it handles a request a lease later. States that differ only in the names of servers count
// once.
//
// A late duplicate never extends a lease, and a server that does not lose its data never forgets that
// a request has ended.
//
// # Properties
//
//   - alone: at most one process holds the key, by its own validity.
//   - tokens: the token of a hold is greater than those of all earlier holds, also while it lasts.
//   - ends: what a process gave up is withdrawn from all servers, and no server grants it afterwards.
//
// TestMistakes breaks one rule at a time, and the search finds the property that it breaks. Two of the
// rules were found by the search:
//
//   - A renewal does not count at a server that does not vote yet ([MuteRenewal]). That server may
//     have lost the grant of another request whose process counts its vote.
//   - A repeat of a request gets a token that is not older than the repeat ([OldToken]). Otherwise a
//     grant from the time before the server votes has a token from that time.
//
// # Tokens
//
// Servers do not vote for a lease after a restart, and a free key remembers its last token for a
// minute. After that only clocks make tokens grow. So the property needs that no clock of a server and
// no proposal is ahead of the clock of another server by more than the lease or, without a restart, by
// more than that minute. TestLimits shows that each of them is needed. A process whose clock is behind
// does no harm, because it only proposes a smaller token.
//
// With Rate 0 all tokens are equal, and a grant needs no second round. That round only refuses more
// grants, so a search for alone may leave it out, and is faster.
package quorum
