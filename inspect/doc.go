// Package inspect is a page that shows who holds which key, what is stuck, and why a task waits. It has no
// authentication of its own: mount it behind your own.
//
//	mux.Handle("/locks/", http.StripPrefix("/locks", requireLogin(inspect.New(locks, inspect.Options{}))))
//
// The page is read-only unless [Options.Allow] is set. Then it also revokes, clears, wakes, pauses and
// limits keys, each after one confirmation and only if the key is still as it was shown. The command
// holdfast serve serves the same page, see docs/operate.md.
//
// It needs no JavaScript: with it the lists are updated each second, without it each five seconds.
package inspect
