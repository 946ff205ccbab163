//go:build race

package cronmw_test

const skewedTicks = 60 // the race detector makes a tick about five times as long; make exhaustive has all 1,000
