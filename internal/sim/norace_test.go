//go:build !race

package sim_test

const defaultSeeds = 20
