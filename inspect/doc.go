// Package inspect is a page that shows who holds which key, what is stuck, and why a task waits. It has no
// authentication of its own: mount it behind your own.
//
//	mux.Handle("/locks/", http.StripPrefix("/locks", requireLogin(inspect.New(locks, inspect.Options{}))))
//
// The page is read-only unless [Options.Allow] is set. Then it also revokes, clears, wakes, pauses and
// limits keys, each after one confirmation. Revoke, clear and the end of a pause or limit act only on what was
// shown. The command
// holdfast serve serves the same page, see docs/operate.md.
//
// Lists are updated each second, or every five seconds without JavaScript.
package inspect
