package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"gopkg.in/yaml.v3"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// readTariff reads what nodes cost from a file, if one is named.
func readTariff(path string) (*fleet.Tariff, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, badTariff(path, err)
	}
	return parseTariff(path, text)
}

func parseTariff(path string, text []byte) (*fleet.Tariff, error) {
	var t fleet.Tariff
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&t); err != nil && !errors.Is(err, io.EOF) {
		return nil, badTariff(path, err)
	}
	if len(t.Nodes) == 0 {
		return nil, badTariff(path, errors.New("it has no line under nodes"))
	}
	sums := []float64{t.Energy, t.PUE}
	for i, n := range t.Nodes {
		sums = append(append(sums, n.Watts...), n.Hourly...)
		var kind job.GPUKind
		if err := kind.UnmarshalText([]byte(n.GPU)); err != nil {
			return nil, badTariff(path, fmt.Errorf("line %d of nodes: %w", i+1, err))
		}
		switch n.Class {
		case "", fleet.Local, fleet.Reserved, fleet.OnDemand:
		default:
			return nil, badTariff(path, fmt.Errorf("line %d of nodes: there is no class %q; use local, reserved or ondemand", i+1, n.Class))
		}
	}
	for _, s := range sums {
		if s < 0 || math.IsNaN(s) || math.IsInf(s, 0) {
			return nil, badTariff(path, fmt.Errorf("prices and powers must be finite and not negative, got %g", s))
		}
	}
	return &t, nil
}

func badTariff(path string, err error) error {
	return fault.New(fault.Invalid, "bad_tariff", "the tariff %s cannot be used: %v", path, err).WithField("tariff")
}
