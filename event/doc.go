// Package event has the types that a Locker passes to its Observer. Packages lockcore, guard and the
// middlewares emit them. An Observer that imports this package links none of these.
package event
