//go:build !race

package cronmw_test

const (
	skewedTicks = 1000
	dayHours    = 25
	manyMonths  = true
)
