// Package locktest helps to test code that uses holdfast: the real code in memory, or on a Redis inside the process. It
// needs no server and no socket.
//
//	locks := locktest.New(t)                         // a Locker of its own for this test
//	release := locktest.Hold(t, locks, "account:42") // somebody else holds the key
//	locktest.Abandon(t, locks, "order:7")            // somebody died while running it
//	locktest.Lose(ctx)                               // the handler loses what it holds
//	locktest.Codec(t, myCodec{}, Receipt{ID: "r-1"}) // a codec of your own keeps what it is given
//
// [Bubble] is a test in a testing/synctest bubble, where a lease of an hour runs out in no time:
//
//	locktest.Bubble(t, func(t *testing.T, locks *lockcore.Locker) { time.Sleep(time.Hour) })
//
// [Run] shows on a Redis of your own what holdfast promises: the server, the topology, the provider, the user's rights and the client
// that production has.
//
//	locktest.Run(t, rdb, lockcore.Options{})
//
// [New] and [Bubble] have a Locker in memory, as lockcore.NewMemory returns it: no other Locker sees its keys.
// [NewServer] is for several Lockers on one Redis, as several processes have, and [Faults] for a network that fails on
// command.
//
// All of it but Run and Bubble also works inside a bubble of your own; [Bubble] says what to mind there.
package locktest
