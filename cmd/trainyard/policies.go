package main

import (
	"context"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/place/lp"
	"trainyard/internal/server"
	"trainyard/internal/sim/ahead"
	"trainyard/internal/solver"
)

// policies are the policies that the configuration and the simulator can name.
func policies() place.Registry { return catalogue.All(installedSolver()) }

// solveFor is how long a solver may take for a plan.
const solveFor = 2 * time.Second

// installedSolver returns the solver of this machine, nil if it has none: then
// only policies that need one cannot be made, and they say so.
func installedSolver() lp.Solve {
	p, err := solver.Find("")
	if err != nil {
		return nil
	}

	return func(m *lp.Model) (*lp.Solution, error) { return p.Solve(context.Background(), m, solveFor) }
}

// simulateFor is how long the simulations of a what-if question may take.
const simulateFor = 20 * time.Second

// simulator answers what-if questions about the yard.
func (r *running) simulator(known place.Registry) server.WhatIf {
	yard := &ahead.Yard{Policies: known, Tariff: r.in.tariff, Patience: simulateFor, Clock: r.clock}

	return func(ctx context.Context, reader *server.Reader, q *api.WhatIfRequest) (*api.WhatIf, error) {
		return yard.Ask(ctx, reader, q)
	}
}
