//go:build !race

package cronmw_test

const skewedTicks = 1000
