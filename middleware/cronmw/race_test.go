//go:build race

package cronmw_test

// The race detector makes all this about five times as long; make exhaustive has all of it.
const (
	skewedTicks = 30
	dayHours    = 5
	manyMonths  = false
)
