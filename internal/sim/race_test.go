//go:build race

package sim_test

const defaultSeeds = 1 // the race detector makes a run about five times as long
