// Package event has the types that a Locker passes to its [Observer], the kinds of keys, and
// [Holder]. An Observer that imports this package links neither the engine nor a client of Redis.
//
//	locks, err := lockcore.New(rdb, lockcore.Options{Observer: event.Join(traces, mine)})
//
// A call has one event Start. Then it has [Waiting] if another holder was first, and [Granted],
// [Refused], [Admitted] or [Replayed]. A call that was granted ends with [Released]. [Lost],
// [Overrun] and [RenewFailed] may come between. The other events tell of a Locker as a whole, or of a middleware.
package event
