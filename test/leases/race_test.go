//go:build race

package leases_test

// underRace says that everything takes many times as long.
const underRace = true
