// Package demo makes a yard to look at: a month of a research group's work, and its nodes as long as it is looked at.
//
// Nothing of it is written by hand. The month is a simulation: the same yardmaster, policy, forecaster and ledger as in
// a server, in virtual time, on modelled nodes, and every batch goes through the store as a server would commit it.
// After that the server runs the yard, and the simulator goes on modelling its nodes in real time. What is
// invented is here: people, machines and prices (yard.go), what jobs are like (recipes.go), when who submits which
// (workload.go) and what people do besides (people.go).
package demo

import (
	"time"

	"trainyard/internal/id"
	"trainyard/internal/sim"
	"trainyard/internal/yardmaster"
)

// You is the user as whom whoever starts the demo is signed in.
const You id.User = "researcher-1"

// Month is how long the yard has been working when it is first seen.
const Month = 30 * 24 * time.Hour

// seed of all that is left to chance.
const seed = 18

// The nodes of a server report more often than those of a month that nobody watches.
const (
	reportEvery = 5 * time.Second
	watchLive   = 15 * time.Second
	watchMonth  = 10 * time.Minute
)

// Configure sets what a yard needs to know of this demo beside its policy.
func Configure(c *yardmaster.Config) {
	c.Tariff = tariff()
	c.Offers = offers()
	c.Shared = sharedFolders()
	c.Network = network().Yard()
	c.Provision.Term = leaseTerm
	c.AssumeSaved = true // as the models of its nodes do
}

// leaseTerm is for how long a provisioned machine is paid for without a sign of life. A demo that is stopped over
// night goes on with the machines it had.
const leaseTerm = 24 * time.Hour

// base is what the month and the yard that a server runs have in common.
func base() sim.Config {
	return sim.Config{
		Tariff:    tariff(),
		Cloud:     &sim.Cloud{Offers: offers(), Describe: describe},
		Network:   network(),
		FairShare: true,
		Detect:    5 * time.Minute,
		Origin:    originOf,
	}
}

// originOf says from where a job comes. The addresses are reserved for documentation.
func originOf(j *sim.Job) yardmaster.Origin {
	return yardmaster.Origin{Actor: string(j.Owner), Address: addressOf(j.Owner)}
}
