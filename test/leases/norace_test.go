//go:build !race

package leases_test

const underRace = false
